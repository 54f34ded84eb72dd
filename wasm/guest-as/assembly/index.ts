// Plugins for reqlock in AssemblyScript. A plugin exports two functions, and passes its own to
// handle:
//
//   import { declare, handle, Decision, Request, PART_METHOD } from "reqlock-guest/assembly";
//
//   export function reqlock_v2(): usize { return declare(PART_METHOD, ["X-Tenant"]); }
//   export function handle_request(): u64 { return handle(decide); }
//
//   function decide(request: Request): Decision {
//     const tenant = request.header("X-Tenant").one();
//     return tenant === null ? Decision.deny(400, "X-Tenant is missing") : Decision.lock(tenant);
//   }
//
// The ABI is in wasm/ABI.md of reqlock. Texts of the request that are not UTF-8 lose bytes.

// @ts-ignore: decorators are AssemblyScript's
@external("reqlock_v2", "config")
declare function hostConfig(buf: usize, limit: u32): u32;
// @ts-ignore
@external("reqlock_v2", "log")
declare function hostLog(level: i32, text: usize, len: u32): void;
// @ts-ignore
@external("reqlock_v2", "kv_get")
declare function hostGet(key: usize, keyLen: u32, buf: usize, limit: u32): i64;
// @ts-ignore
@external("reqlock_v2", "kv_set")
declare function hostSet(key: usize, keyLen: u32, value: usize, len: u32, ttl: i64): i32;
// @ts-ignore
@external("reqlock_v2", "kv_incr")
declare function hostIncr(key: usize, keyLen: u32, delta: i64, ttl: i64): i64;
// @ts-ignore
@external("reqlock_v2", "kv_delete")
declare function hostDelete(key: usize, keyLen: u32): void;

// The parts of a request, beside its headers. PART_BODY makes the host read the body of every
// request.
export const PART_METHOD: u32 = 1;
export const PART_URI: u32 = 2;
export const PART_SOURCE_ADDR: u32 = 4;
export const PART_PROTOCOL: u32 = 8;
export const PART_HOST: u32 = 16;
export const PART_BODY: u32 = 32;

export const MODE_EXCLUSIVE: i32 = 0; // one request at a time
export const MODE_FAIR: i32 = 1; // the same, first come, first served
export const MODE_FENCED: i32 = 2; // exclusive, with a fencing token
export const MODE_READ: i32 = 3; // shared with other readers
export const MODE_WRITE: i32 = 4; // excludes readers and writers
export const MODE_READ_WRITE: i32 = 5; // MODE_READ for GET and HEAD, MODE_WRITE for the rest

export const LEVEL_DEBUG: i32 = -1;
export const LEVEL_INFO: i32 = 0;
export const LEVEL_WARN: i32 = 1;
export const LEVEL_ERROR: i32 = 2;

const FIELDS: usize = 48; // bytes of the request's fields, before its headers
const BUFFER: i32 = 72 << 10;
const ENTRIES: i32 = 64;

const buffer = new ArrayBuffer(BUFFER);
const declaration = memory.data(20, 4);
const record = memory.data(36 + 12 * ENTRIES, 8);
let names: string[] = [];
let encodedNames = new ArrayBuffer(0);
let texts: ArrayBuffer[] = []; // of the last decision: the host reads them

// declare returns what reqlock_v2 returns: which parts and headers the plugin reads.
export function declare(parts: u32, headers: string[]): usize {
  names = headers.map<string>((name: string) => name.toLowerCase());
  let list = "";
  for (let i = 0; i < names.length; i++) list += names[i] + "\0";
  encodedNames = String.UTF8.encode(list);
  store<u32>(declaration, parts, 0);
  store<u32>(declaration, changetype<usize>(encodedNames), 4);
  store<u32>(declaration, encodedNames.byteLength, 8);
  store<u32>(declaration, changetype<usize>(buffer), 12);
  store<u32>(declaration, BUFFER, 16);
  return declaration;
}

// handle returns what handle_request returns.
export function handle(decide: (request: Request) => Decision): u64 {
  decide(new Request()).write();
  return record;
}

// A Request has the parts that declare named. The others are empty. It is valid until handle
// returns.
export class Request {
  private text(at: usize): string | null {
    const base = changetype<usize>(buffer) + at;
    const ptr = load<u32>(base), len = load<u32>(base, 4);
    if (ptr == 0) return len == 0 ? "" : null;
    return String.UTF8.decodeUnsafe(ptr, len);
  }

  // A text is null if it does not fit into the buffer.
  method(): string | null { return this.text(0); }
  uri(): string | null { return this.text(8); }
  sourceAddr(): string | null { return this.text(16); }
  protocol(): string | null { return this.text(24); }
  host(): string | null { return this.text(32); }

  // path returns the URI up to the query, still encoded.
  path(): string | null {
    const uri = this.uri();
    if (uri === null) return null;
    const end = uri.indexOf("?");
    return end < 0 ? uri : uri.substring(0, end);
  }

  // body is null if it is too large, or the client did not send it. Return Decision.needsBody() if
  // you need it.
  body(): Uint8Array | null {
    const base = changetype<usize>(buffer) + 40;
    const ptr = load<u32>(base), len = load<u32>(base, 4);
    if (ptr == 0 && len > 0) return null;
    const copy = new Uint8Array(len);
    memory.copy(copy.dataStart, ptr, len);
    return copy;
  }

  // header returns a header that declare named, in any case.
  header(name: string): Header {
    const place = names.indexOf(name.toLowerCase());
    if (place < 0) throw new Error("declare does not name the header " + name);
    const at = FIELDS + 12 * place;
    return new Header(this.text(at), load<u32>(changetype<usize>(buffer) + at, 8));
  }
}

export class Header {
  // text has NUL between the values; null: it does not fit into the buffer. count is how often the
  // header was sent.
  constructor(private text: string | null, public count: u32) {}

  // one returns the value of a header that was sent once.
  one(): string | null { return this.count == 1 ? this.text : null; }

  values(): string[] {
    const text = this.text;
    return text === null || this.count == 0 ? [] : text.split("\0");
  }
}

// A Decision is what to do with a request. Its methods return it.
export class Decision {
  private modeValue: i32 = -1;
  private limitValue: i32 = 0;
  private wait: i64 = -1;
  private lease: i64 = -1;
  private status: u32 = 0;
  private retry: u32 = 0;
  private kinds: u32[] = [];
  private entries: string[] = [];
  private constructor(private action: u32) {}

  // lock locks a key of 1 to 4096 bytes. Mode and times that are not set are those of the host's
  // configuration.
  static lock(key: string): Decision { return new Decision(0).add(1, key); }

  // skip runs the handler without a lock.
  static skip(): Decision { return new Decision(1); }

  // deny answers with a status from 400 to 599 and up to 256 bytes of text, in place of the handler.
  static deny(status: u32, detail: string): Decision {
    const d = new Decision(2).add(2, detail);
    d.status = status;
    return d;
  }

  // needsBody lets the host answer a request whose body it could not give.
  static needsBody(): Decision { return new Decision(3); }

  private add(kind: u32, text: string): Decision {
    this.kinds.push(kind);
    this.entries.push(text);
    return this;
  }

  private limitBytes(): ArrayBuffer {
    const bytes = new ArrayBuffer(4);
    store<i32>(changetype<usize>(bytes), this.limitValue);
    return bytes;
  }

  key(key: string): Decision { return this.add(1, key); }
  mode(mode: i32): Decision { this.modeValue = mode; return this; }
  // fenced gives the holder of the lock a fencing token. It needs a single key, and readers get none.
  fenced(): Decision { return this.add(7, ""); }
  // limit lets up to n requests with the same key in at a time, at least 2, in place of one under a lock.
  // Beyond it they get 429. It does not go with a mode or a fencing token.
  limit(n: i32): Decision { this.limitValue = n; return this.add(8, ""); }
  waitMs(ms: i64): Decision { this.wait = ms; return this; }
  leaseMs(ms: i64): Decision { this.lease = ms; return this; }
  title(text: string): Decision { return this.add(3, text); }
  problem(name: string): Decision { return this.add(4, name); }
  reason(text: string): Decision { return this.add(5, text); }
  retryAfter(seconds: u32): Decision { this.retry = seconds; return this; }
  field(name: string, value: string): Decision { return this.add(6, name + "=" + value); }

  // write fills the record. The host refuses one with more entries than it has room for.
  write(): void {
    store<u32>(record, this.action, 0);
    store<i32>(record, this.modeValue, 4);
    store<i64>(record, this.wait, 8);
    store<i64>(record, this.lease, 16);
    store<u32>(record, this.status, 24);
    store<u32>(record, this.retry, 28);
    store<u32>(record, this.entries.length, 32);
    texts = [];
    for (let i = 0; i < min(this.entries.length, ENTRIES); i++) {
      const text = this.kinds[i] == 8 ? this.limitBytes() : String.UTF8.encode(this.entries[i]), entry = record + 36 + 12 * i;
      texts.push(text);
      store<u32>(entry, this.kinds[i], 0);
      store<u32>(entry, changetype<usize>(text), 4);
      store<u32>(entry, text.byteLength, 8);
    }
  }
}

// settings returns the plugin's configuration, Config.Settings of the host.
export function settings(): string {
  let buf = new ArrayBuffer(256);
  let n = hostConfig(changetype<usize>(buf), buf.byteLength);
  if (n > <u32>buf.byteLength) {
    buf = new ArrayBuffer(n);
    n = hostConfig(changetype<usize>(buf), n);
  }
  return String.UTF8.decodeUnsafe(changetype<usize>(buf), n);
}

// log writes a line to the host's log.
export function log(level: i32, text: string): void {
  const bytes = String.UTF8.encode(text);
  hostLog(level, changetype<usize>(bytes), bytes.byteLength);
}

// The memory that all instances of the plugin share, bounded by the host. Keys have 1 to 256 bytes;
// entries live from 1 ms to a day.

export function sharedGet(key: string): string | null {
  const name = String.UTF8.encode(key);
  let buf = new ArrayBuffer(256);
  let n = hostGet(changetype<usize>(name), name.byteLength, changetype<usize>(buf), buf.byteLength);
  if (n > buf.byteLength) {
    buf = new ArrayBuffer(<i32>n);
    n = hostGet(changetype<usize>(name), name.byteLength, changetype<usize>(buf), buf.byteLength);
  }
  if (n < 0 || n > buf.byteLength) return null;
  return String.UTF8.decodeUnsafe(changetype<usize>(buf), <usize>n);
}

// sharedSet returns false if the memory is full.
export function sharedSet(key: string, value: string, ttlMs: i64): bool {
  const name = String.UTF8.encode(key), text = String.UTF8.encode(value);
  return hostSet(changetype<usize>(name), name.byteLength, changetype<usize>(text), text.byteLength, ttlMs) != 0;
}

// sharedIncr adds to a counter and returns its new value. A new counter starts at 0 and lives for
// ttlMs. i64.MIN_VALUE: the memory is full, or the key has a value of sharedSet.
export function sharedIncr(key: string, delta: i64, ttlMs: i64): i64 {
  const name = String.UTF8.encode(key);
  return hostIncr(changetype<usize>(name), name.byteLength, delta, ttlMs);
}

export function sharedDelete(key: string): void {
  const name = String.UTF8.encode(key);
  hostDelete(changetype<usize>(name), name.byteLength);
}
