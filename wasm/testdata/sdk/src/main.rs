//! A guest on an SDK that does not know reqlock. It sets its key as the header x-lock-key.

use http_wasm_guest::{
    Guest,
    host::{Request, Response},
    register,
};

struct Plugin;

impl Guest for Plugin {
    fn handle_request(&self, request: &Request, response: &Response) -> (bool, i32) {
        let tenant = request.header.get(b"x-tenant").unwrap_or_default();
        if tenant.is_empty() {
            response.set_status(400);
            return (false, 0);
        }
        let key = [&tenant[..], &request.uri()[..], &request.body.read()[..]].join(&b' ');
        request.header.set(b"x-lock-key", &key);
        request.set_uri(b"/rewritten");
        (true, 7)
    }
}

fn main() {
    register(Plugin);
}
