//! The test guest in Rust; ../README.md describes its policy. It needs no crates and no allocator.

use std::hint::black_box;

mod http {
    #[link(wasm_import_module = "http_handler")]
    extern "C" {
        pub fn get_config(buf: *mut u8, limit: u32) -> u32;
        pub fn log(level: i32, text: *const u8, len: u32);
        pub fn get_method(buf: *mut u8, limit: u32) -> u32;
        pub fn get_uri(buf: *mut u8, limit: u32) -> u32;
        pub fn get_header_values(kind: i32, name: *const u8, name_len: u32, buf: *mut u8, limit: u32) -> u64;
        pub fn read_body(kind: i32, buf: *mut u8, limit: u32) -> u64;
    }
}

mod reqlock {
    #[link(wasm_import_module = "reqlock_v1")]
    extern "C" {
        pub fn add_key(key: *const u8, len: u32);
        pub fn set_wait_ms(ms: i64);
        pub fn set_lease_ms(ms: i64);
        pub fn set_mode(mode: i32);
        pub fn skip();
        pub fn deny(status: i32, text: *const u8, len: u32);
    }
}

mod wasi {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    extern "C" {
        pub fn proc_exit(code: i32) -> !;
    }
}

const REQUEST: i32 = 0;
const MODE_READ: i32 = 3;
const MODE_WRITE: i32 = 4;

fn add_key(key: &[u8]) {
    unsafe { reqlock::add_key(key.as_ptr(), key.len() as u32) }
}

fn deny(status: i32, text: &str) {
    unsafe { reqlock::deny(status, text.as_ptr(), text.len() as u32) }
}

/// fetch returns a value of at most N bytes, or None if it is longer.
fn fetch<const N: usize>(get: unsafe extern "C" fn(*mut u8, u32) -> u32) -> Option<Vec<u8>> {
    let mut buf = [0u8; N];
    let len = unsafe { get(buf.as_mut_ptr(), N as u32) } as usize;
    buf.get(..len).map(<[u8]>::to_vec)
}

/// header returns the value of a header that was sent once, if it has at most N bytes.
fn header<const N: usize>(name: &str) -> Option<Vec<u8>> {
    let mut buf = [0u8; N];
    let result = unsafe { http::get_header_values(REQUEST, name.as_ptr(), name.len() as u32, buf.as_mut_ptr(), N as u32) };
    let len = result as u32 as usize; // with the NUL
    (result >> 32 == 1 && len <= N).then(|| buf[..len - 1].to_vec())
}

#[allow(unconditional_recursion)]
fn recurse(depth: i32) -> i32 {
    black_box(recurse(black_box(depth + 1)) + depth)
}

/// fault triggers a fault, and reports whether the request ends with it.
fn fault(code: u8) -> bool {
    let outside = 0xffff_fff0u32 as *mut u8;
    unsafe {
        match code {
            b't' => panic!("the header says so"),
            b'o' => {
                black_box(outside.cast::<i32>().read_volatile());
            }
            b'z' => {
                black_box(1 / black_box(0));
            }
            b'l' => loop {
                black_box(0);
            },
            b'r' => {
                recurse(1);
            }
            b'm' => {
                let mut hoard: Vec<Vec<u8>> = Vec::new();
                loop {
                    hoard.push(vec![code; 1 << 20]);
                    black_box(&hoard);
                }
            }
            b'f' => {
                let line = [b'f'; 2000];
                for _ in 0..2000 {
                    http::log(0, line.as_ptr(), line.len() as u32);
                }
                return false;
            }
            b'x' => wasi::proc_exit(3),
            b'p' => reqlock::add_key(outside, 100),
            b'g' => {
                http::get_uri(outside, 1 << 30);
            }
            b'b' => {
                let mut buf = [0u8; 1];
                http::read_body(REQUEST, buf.as_mut_ptr(), 0);
            }
            b'k' => add_key(&[b'k'; 5000]),
            b'u' => add_key(b"\xff\xfe"),
            b'e' => add_key(b""),
            b'w' => reqlock::set_wait_ms(-1),
            b'W' => reqlock::set_wait_ms(1 << 62),
            b'd' => reqlock::set_lease_ms(-1),
            b'D' => reqlock::set_lease_ms(1 << 62),
            b'q' => reqlock::set_mode(77),
            b's' => deny(200, "all is well"),
            b'c' => (0..17).for_each(|_| add_key(b"key")),
            _ => {}
        }
    }
    true
}

fn decide() {
    if let Some(code) = header::<2>("x-fault") {
        if fault(code[0]) {
            return;
        }
    }
    let Some(uri) = fetch::<1024>(http::get_uri) else {
        return deny(414, "the URI is too long");
    };
    let path = uri.split(|&b| b == b'?').next().unwrap_or(&uri);
    if path == b"/health" {
        return unsafe { reqlock::skip() };
    }
    let Some(tenant) = header::<65>("x-tenant").filter(|t| !t.is_empty()) else {
        return deny(400, "X-Tenant is missing");
    };
    add_key(&[&tenant, path].join(&b':'));

    let method = fetch::<16>(http::get_method).unwrap_or_default();
    unsafe {
        if method == b"GET" || method == b"HEAD" {
            reqlock::set_mode(MODE_READ);
            reqlock::set_wait_ms(1000);
            return;
        }
        reqlock::set_mode(MODE_WRITE);
        reqlock::set_wait_ms(250);
        reqlock::set_lease_ms(5000);
        if method == b"PUT" {
            let mut body = [0u8; 64];
            let len = http::read_body(REQUEST, body.as_mut_ptr(), 64) as u32 as usize;
            if len > 0 {
                add_key(&body[..len]);
            }
        }
    }
}

#[export_name = "_initialize"]
pub extern "C" fn initialize() {
    match fetch::<1024>(http::get_config).unwrap_or_default().first() {
        Some(b'l') => loop {
            black_box(0);
        },
        Some(b't') => panic!("the settings say so"),
        _ => {}
    }
}

#[export_name = "handle_request"]
pub extern "C" fn handle_request() -> i64 {
    decide();
    1
}
