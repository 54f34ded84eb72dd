import { declare, handle, sharedIncr, Decision, Request, MODE_READ, MODE_WRITE, PART_METHOD, PART_URI } from "reqlock-guest/assembly";

export function reqlock_v2(): usize { return declare(PART_METHOD | PART_URI, ["X-Tenant"]); }
export function handle_request(): u64 { return handle(decide); }

function decide(request: Request): Decision {
  if (request.path() == "/health") return Decision.skip();
  const tenant = request.header("X-Tenant").one();
  if (tenant === null || tenant.length < 1 || String.UTF8.byteLength(tenant) > 64)
    return Decision.deny(400, "X-Tenant is missing").reason("no-tenant");
  if (sharedIncr(tenant, 1, 60000) > 1000)
    return Decision.deny(429, "Too many requests").problem("rate-limited").retryAfter(60);
  const method = request.method();
  if (method == "GET" || method == "HEAD") return Decision.lock(tenant).mode(MODE_READ);
  return Decision.lock(tenant).mode(MODE_WRITE).waitMs(2000);
}
