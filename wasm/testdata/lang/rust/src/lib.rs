use reqlock_guest::{plugin, shared, Decision, Mode, Request};

plugin!(decide, [Method, Uri], ["X-Tenant"]);

fn decide(request: &Request) -> Decision {
    if request.path() == Some(b"/health") {
        return Decision::skip();
    }
    let tenant = match request.header("X-Tenant").one() {
        Some(tenant) if (1..=64).contains(&tenant.len()) => tenant,
        _ => return Decision::deny(400, "X-Tenant is missing").reason("no-tenant"),
    };
    if shared::incr(tenant, 1, 60_000).map_or(false, |n| n > 1000) {
        return Decision::deny(429, "Too many requests").problem("rate-limited").retry_after(60);
    }
    match request.method() {
        b"GET" | b"HEAD" => Decision::lock(tenant).mode(Mode::Read),
        _ => Decision::lock(tenant).mode(Mode::Write).wait_ms(2000),
    }
}
