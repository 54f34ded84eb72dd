// The test guest in AssemblyScript; ../README.md describes its policy.

// @ts-ignore: decorators are AssemblyScript's
@external("http_handler", "get_config")
declare function getConfig(buf: usize, limit: u32): u32;
// @ts-ignore
@external("http_handler", "log")
declare function hostLog(level: i32, text: usize, len: u32): void;
// @ts-ignore
@external("http_handler", "get_method")
declare function getMethod(buf: usize, limit: u32): u32;
// @ts-ignore
@external("http_handler", "get_uri")
declare function getURI(buf: usize, limit: u32): u32;
// @ts-ignore
@external("http_handler", "get_header_values")
declare function getHeaderValues(kind: i32, name: usize, nameLen: u32, buf: usize, limit: u32): u64;
// @ts-ignore
@external("http_handler", "read_body")
declare function readBody(kind: i32, buf: usize, limit: u32): u64;
// @ts-ignore
@external("reqlock_v1", "add_key")
declare function hostAddKey(key: usize, len: u32): void;
// @ts-ignore
@external("reqlock_v1", "set_wait_ms")
declare function setWait(ms: i64): void;
// @ts-ignore
@external("reqlock_v1", "set_lease_ms")
declare function setLease(ms: i64): void;
// @ts-ignore
@external("reqlock_v1", "set_mode")
declare function setMode(mode: i32): void;
// @ts-ignore
@external("reqlock_v1", "skip")
declare function skip(): void;
// @ts-ignore
@external("reqlock_v1", "deny")
declare function hostDeny(status: i32, text: usize, len: u32): void;
// @ts-ignore
@external("wasi_snapshot_preview1", "proc_exit")
declare function procExit(code: i32): void;

const REQUEST: i32 = 0;
const MODE_READ: i32 = 3;
const MODE_WRITE: i32 = 4;
const OUTSIDE: usize = 0xfffffff0;

const buf = new Uint8Array(2048);
let zero: i32 = 0;

// text returns the first bytes of buf.
function text(len: u32): string {
  return String.UTF8.decodeUnsafe(buf.dataStart, len);
}

function addKey(key: string): void {
  const bytes = String.UTF8.encode(key);
  hostAddKey(changetype<usize>(bytes), bytes.byteLength);
}

function deny(status: i32, reason: string): void {
  const bytes = String.UTF8.encode(reason);
  hostDeny(status, changetype<usize>(bytes), bytes.byteLength);
}

// header returns the value of a header that was sent once, if it has at most limit bytes, or nothing.
function header(name: string, limit: u32): string {
  const bytes = String.UTF8.encode(name);
  const result = getHeaderValues(REQUEST, changetype<usize>(bytes), bytes.byteLength, buf.dataStart, limit + 1);
  const len = <u32>result; // with the NUL
  return result >> 32 == 1 && len <= limit + 1 ? text(len - 1) : "";
}

function forever(): void {
  for (;;) zero = 0;
}

function recurse(depth: i32): i32 {
  return zero == 1 ? 0 : recurse(depth + 1) + depth;
}

// fault triggers a fault, and reports whether the request ends with it.
function fault(code: i32): bool {
  switch (code) {
    case 0x74: // t
      throw new Error("the header says so");
    case 0x6f: // o
      zero = load<i32>(OUTSIDE);
      break;
    case 0x7a: // z
      zero = 1 / zero;
      break;
    case 0x6c: // l
      forever();
      break;
    case 0x72: // r
      zero = recurse(1);
      break;
    case 0x6d: { // m
      const hoard: Uint8Array[] = [];
      for (;;) hoard.push(new Uint8Array(1 << 20));
    }
    case 0x66: // f
      for (let i = 0; i < 2000; i++) hostLog(0, buf.dataStart, 2000);
      return false;
    case 0x78: // x
      procExit(3);
      break;
    case 0x70: // p
      hostAddKey(OUTSIDE, 100);
      break;
    case 0x67: // g
      getURI(OUTSIDE, 1 << 30);
      break;
    case 0x62: // b
      readBody(REQUEST, buf.dataStart, 0);
      break;
    case 0x6b: // k
      addKey("k".repeat(5000));
      break;
    case 0x75: // u
      buf[0] = 0xff;
      buf[1] = 0xfe;
      hostAddKey(buf.dataStart, 2);
      break;
    case 0x65: // e
      hostAddKey(buf.dataStart, 0);
      break;
    case 0x77: // w
      setWait(-1);
      break;
    case 0x57: // W
      setWait(<i64>1 << 62);
      break;
    case 0x64: // d
      setLease(-1);
      break;
    case 0x44: // D
      setLease(<i64>1 << 62);
      break;
    case 0x71: // q
      setMode(77);
      break;
    case 0x73: // s
      deny(200, "all is well");
      break;
    case 0x63: // c
      for (let i = 0; i < 17; i++) addKey("key");
      break;
  }
  return true;
}

function decide(): void {
  const code = header("x-fault", 1);
  if (code.length == 1 && fault(code.charCodeAt(0))) return;

  const uriLen = getURI(buf.dataStart, 1024);
  if (uriLen > 1024) return deny(414, "the URI is too long");
  const path = text(uriLen).split("?")[0];
  if (path == "/health") return skip();

  const tenant = header("x-tenant", 64);
  if (tenant.length == 0) return deny(400, "X-Tenant is missing");
  addKey(tenant + ":" + path);

  const method = text(min<u32>(getMethod(buf.dataStart, 16), 16));
  if (method == "GET" || method == "HEAD") {
    setMode(MODE_READ);
    setWait(1000);
    return;
  }
  setMode(MODE_WRITE);
  setWait(250);
  setLease(5000);
  if (method == "PUT") {
    const len = <u32>readBody(REQUEST, buf.dataStart, 64);
    if (len > 0) hostAddKey(buf.dataStart, len);
  }
}

export function handle_request(): i64 {
  decide();
  return 1;
}

// The start function, exported as _initialize.
if (getConfig(buf.dataStart, 2048) > 0) {
  if (buf[0] == 0x6c) forever();
  if (buf[0] == 0x74) throw new Error("the settings say so");
}
