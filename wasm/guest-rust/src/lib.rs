//! Plugins for reqlock in Rust. A plugin is a `cdylib` with one function that receives each request
//! and decides which locks it needs:
//!
//! ```
//! use reqlock_guest::{plugin, Decision, Mode, Request};
//!
//! plugin!(decide, [Method], ["X-Tenant"]);
//!
//! fn decide(request: &Request) -> Decision {
//!     match request.header("X-Tenant").one() {
//!         Some(tenant) => Decision::lock(tenant).mode(Mode::ReadWrite),
//!         None => Decision::deny(400, "X-Tenant is missing"),
//!     }
//! }
//! ```
//!
//! Build it for `wasm32-unknown-unknown`. The ABI is in wasm/ABI.md of reqlock. A plugin has
//! one thread: an instance decides on one request at a time.

use std::cell::UnsafeCell;

#[cfg(target_arch = "wasm32")]
mod host {
    #[link(wasm_import_module = "reqlock_v2")]
    extern "C" {
        pub fn config(buf: *mut u8, limit: u32) -> u32;
        pub fn log(level: i32, text: *const u8, len: u32);
        pub fn kv_get(key: *const u8, key_len: u32, buf: *mut u8, limit: u32) -> i64;
        pub fn kv_set(key: *const u8, key_len: u32, value: *const u8, len: u32, ttl_ms: i64) -> i32;
        pub fn kv_incr(key: *const u8, key_len: u32, delta: i64, ttl_ms: i64) -> i64;
        pub fn kv_delete(key: *const u8, key_len: u32);
    }
}

/// Elsewhere there is no host: only decisions can be tested.
#[cfg(not(target_arch = "wasm32"))]
#[allow(clippy::missing_safety_doc)]
mod host {
    fn none() -> ! {
        panic!("reqlock: there is no host; build for wasm32-unknown-unknown")
    }
    pub unsafe fn config(_: *mut u8, _: u32) -> u32 {
        none()
    }
    pub unsafe fn log(_: i32, _: *const u8, _: u32) {
        none()
    }
    pub unsafe fn kv_get(_: *const u8, _: u32, _: *mut u8, _: u32) -> i64 {
        none()
    }
    pub unsafe fn kv_set(_: *const u8, _: u32, _: *const u8, _: u32, _: i64) -> i32 {
        none()
    }
    pub unsafe fn kv_incr(_: *const u8, _: u32, _: i64, _: i64) -> i64 {
        none()
    }
    pub unsafe fn kv_delete(_: *const u8, _: u32) {
        none()
    }
}

/// A part of a request, beside its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Part {
    Method = 1,
    Uri = 2,
    SourceAddr = 4,
    Protocol = 8,
    Host = 16,
    /// Makes the host read the body of every request.
    Body = 32,
}

/// A kind of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Mode {
    /// One request at a time.
    Exclusive = 0,
    /// The same, first come, first served.
    Fair = 1,
    /// Exclusive, with a fencing token.
    Fenced = 2,
    /// Shared with other readers.
    Read = 3,
    /// Excludes readers and writers.
    Write = 4,
    /// `Read` for GET and HEAD, `Write` for the rest.
    ReadWrite = 5,
}

/// The severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Level {
    Debug = -1,
    Info = 0,
    Warn = 1,
    Error = 2,
}

/// The body is too large or the client did not send it. Return `Decision::needs_body()` if you need
/// it: the host answers the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoBody;

const FIELDS: usize = 6;
const MISSING: u32 = u32::MAX;

/// A request, with the parts that `plugin!` names. The others are empty.
pub struct Request<'a> {
    buffer: &'a [u8],
    base: u32,
    names: &'a str,
}

impl<'a> Request<'a> {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.buffer[at], self.buffer[at + 1], self.buffer[at + 2], self.buffer[at + 3]])
    }

    fn text(&self, at: usize) -> Option<&'a [u8]> {
        let (ptr, len) = (self.word(at), self.word(at + 4) as usize);
        if ptr == 0 {
            return if len == 0 { Some(&[]) } else { None };
        }
        let begin = ptr.wrapping_sub(self.base) as usize;
        self.buffer.get(begin..begin + len)
    }

    fn field(&self, part: Part) -> Option<&'a [u8]> {
        self.text((part as u32).trailing_zeros() as usize * 8)
    }

    /// The method, such as `GET`; empty if it is longer than the buffer.
    pub fn method(&self) -> &'a [u8] {
        self.field(Part::Method).unwrap_or_default()
    }

    /// The path, encoded as it was sent, and the query. `None`: it does not fit into the buffer.
    pub fn uri(&self) -> Option<&'a [u8]> {
        self.field(Part::Uri)
    }

    /// The URI up to the query, still encoded.
    pub fn path(&self) -> Option<&'a [u8]> {
        self.uri().map(|uri| uri.split(|&b| b == b'?').next().unwrap_or(uri))
    }

    /// The address and port of the connection to the client.
    pub fn source_addr(&self) -> &'a [u8] {
        self.field(Part::SourceAddr).unwrap_or_default()
    }

    /// The HTTP version, such as `HTTP/1.1`.
    pub fn protocol(&self) -> &'a [u8] {
        self.field(Part::Protocol).unwrap_or_default()
    }

    /// The host that the client asked for. `None`: it does not fit into the buffer.
    pub fn host(&self) -> Option<&'a [u8]> {
        self.field(Part::Host)
    }

    /// The body.
    pub fn body(&self) -> Result<&'a [u8], NoBody> {
        if self.word(5 * 8 + 4) == MISSING {
            return Err(NoBody);
        }
        self.field(Part::Body).ok_or(NoBody)
    }

    /// A header that `plugin!` names, in any case. It panics on another name.
    pub fn header(&self, name: &str) -> Header<'a> {
        let place = self.names.split_terminator('\0').position(|n| n.eq_ignore_ascii_case(name));
        let at = FIELDS * 8 + 12 * place.unwrap_or_else(|| panic!("plugin! does not name the header {name}"));
        Header { text: self.text(at), count: self.word(at + 8) }
    }
}

/// The values of a header.
pub struct Header<'a> {
    text: Option<&'a [u8]>, // with NUL between the values; None: it does not fit into the buffer
    count: u32,
}

impl<'a> Header<'a> {
    /// How often the header was sent.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The value of a header that was sent once and fits into the buffer.
    pub fn one(&self) -> Option<&'a [u8]> {
        self.text.filter(|_| self.count == 1)
    }

    /// All values; none if they do not fit into the buffer.
    pub fn values(&self) -> impl Iterator<Item = &'a [u8]> {
        let count = if self.text.is_some() { self.count as usize } else { 0 };
        self.text.unwrap_or_default().split(|&b| b == 0).take(count)
    }
}

const KEY: u32 = 1;
const DETAIL: u32 = 2;
const TITLE: u32 = 3;
const PROBLEM: u32 = 4;
const REASON: u32 = 5;
const FIELD: u32 = 6;
const TOKEN: u32 = 7;
const LIMIT: u32 = 8;
const ENTRIES: usize = 64;

/// What to do with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    action: u32,
    mode: i32,
    wait_ms: i64,
    lease_ms: i64,
    status: u32,
    retry_after: u32,
    entries: Vec<(u32, Vec<u8>)>,
}

impl Decision {
    fn new(action: u32) -> Self {
        Decision { action, mode: -1, wait_ms: -1, lease_ms: -1, status: 0, retry_after: 0, entries: Vec::new() }
    }

    fn with(mut self, kind: u32, text: impl Into<Vec<u8>>) -> Self {
        self.entries.push((kind, text.into()));
        self
    }

    /// Lock a key of 1 to 4096 bytes of UTF-8. Mode and times that are not set are those of the host's
    /// configuration.
    pub fn lock(key: impl Into<Vec<u8>>) -> Self {
        Self::new(0).with(KEY, key)
    }

    /// Run the handler without a lock.
    pub fn skip() -> Self {
        Self::new(1)
    }

    /// Answer with a status from 400 to 599 and up to 256 bytes of text, in place of the handler.
    pub fn deny(status: u32, detail: impl Into<Vec<u8>>) -> Self {
        let mut d = Self::new(2).with(DETAIL, detail);
        d.status = status;
        d
    }

    /// Let the host answer a request whose body it could not give.
    pub fn needs_body() -> Self {
        Self::new(3)
    }

    /// Lock one more key. A request gets all of its locks or none.
    pub fn key(self, key: impl Into<Vec<u8>>) -> Self {
        self.with(KEY, key)
    }

    /// The kind of lock.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode as i32;
        self
    }

    /// The holder of the lock gets a fencing token. It needs a single key, and readers get none.
    pub fn fenced(self) -> Self {
        self.with(TOKEN, "")
    }

    /// Let up to `n` requests with the same key in at a time, at least 2, in place of one under a lock.
    /// Beyond it they get 429. It does not go with a mode or a fencing token.
    pub fn limit(self, n: i32) -> Self {
        self.with(LIMIT, n.to_le_bytes())
    }

    /// How long to wait for a held lock; 0: 409 at once.
    pub fn wait_ms(mut self, ms: u32) -> Self {
        self.wait_ms = ms.into();
        self
    }

    /// How long to hold the lock at most; 0: until the handler returns.
    pub fn lease_ms(mut self, ms: u32) -> Self {
        self.lease_ms = ms.into();
        self
    }

    /// The problem's title, up to 80 bytes.
    pub fn title(self, text: impl Into<Vec<u8>>) -> Self {
        self.with(TITLE, text)
    }

    /// The end of the problem's type: 1 to 64 of a-z, 0-9 and -.
    pub fn problem(self, name: impl Into<Vec<u8>>) -> Self {
        self.with(PROBLEM, name)
    }

    /// The header Reqlock-Reason, up to 128 characters of ASCII.
    pub fn reason(self, text: impl Into<Vec<u8>>) -> Self {
        self.with(REASON, text)
    }

    /// The header Retry-After, up to a day.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = seconds;
        self
    }

    /// A field for the host's log. The name must not contain `=`.
    pub fn field(self, name: &str, value: &str) -> Self {
        self.with(FIELD, format!("{name}={value}"))
    }
}

/// The plugin's configuration, `Config.Settings` of the host.
pub fn settings() -> Vec<u8> {
    fetch(|buf, limit| unsafe { host::config(buf, limit) }.into()).unwrap_or_default()
}

/// Write a line to the host's log.
pub fn log(level: Level, text: &str) {
    unsafe { host::log(level as i32, text.as_ptr(), text.len() as u32) }
}

/// The memory that all instances of the plugin share, bounded by the host. Keys have 1 to 256 bytes;
/// entries live from 1 ms to a day.
pub mod shared {
    use super::{fetch, host};

    pub fn get(key: &[u8]) -> Option<Vec<u8>> {
        fetch(|buf, limit| unsafe { host::kv_get(key.as_ptr(), key.len() as u32, buf, limit) })
    }

    /// Returns false if the memory is full.
    pub fn set(key: &[u8], value: &[u8], ttl_ms: u32) -> bool {
        unsafe { host::kv_set(key.as_ptr(), key.len() as u32, value.as_ptr(), value.len() as u32, ttl_ms.into()) != 0 }
    }

    /// Adds to a counter and returns its new value. A new counter starts at 0 and lives for `ttl_ms`.
    /// `None`: the memory is full, or the key has a value of `set`.
    pub fn incr(key: &[u8], delta: i64, ttl_ms: u32) -> Option<i64> {
        let value = unsafe { host::kv_incr(key.as_ptr(), key.len() as u32, delta, ttl_ms.into()) };
        Some(value).filter(|&v| v != i64::MIN)
    }

    pub fn delete(key: &[u8]) {
        unsafe { host::kv_delete(key.as_ptr(), key.len() as u32) }
    }
}

/// fetch repeats a call with a larger buffer if the value does not fit.
fn fetch(get: impl Fn(*mut u8, u32) -> i64) -> Option<Vec<u8>> {
    let mut buf = vec![0; 256];
    loop {
        let len = usize::try_from(get(buf.as_mut_ptr(), buf.len() as u32)).ok()?;
        if len <= buf.len() {
            buf.truncate(len);
            return Some(buf);
        }
        buf.resize(len, 0);
    }
}

const BUFFER: usize = 72 << 10;

#[repr(C, align(8))]
struct Record {
    action: u32,
    mode: i32,
    wait_ms: i64,
    lease_ms: i64,
    status: u32,
    retry_after: u32,
    count: u32,
    entries: [[u32; 3]; ENTRIES],
}

/// What the host reads when it starts the plugin.
#[repr(C)]
pub struct Declaration {
    wants: u32,
    names: u32,
    names_len: u32,
    buffer: u32,
    buffer_len: u32,
}

/// The memory that the host reads and writes between calls.
struct State {
    buffer: [u8; BUFFER],
    declaration: Declaration,
    names: &'static str,
    record: Record,
    decision: Option<Decision>, // owns the texts of the record
}

struct Global(UnsafeCell<State>);

// A guest has one thread.
unsafe impl Sync for Global {}

static STATE: Global = Global(UnsafeCell::new(State {
    buffer: [0; BUFFER],
    declaration: Declaration { wants: 0, names: 0, names_len: 0, buffer: 0, buffer_len: 0 },
    names: "",
    record: Record { action: 0, mode: 0, wait_ms: 0, lease_ms: 0, status: 0, retry_after: 0, count: 0, entries: [[0; 3]; ENTRIES] },
    decision: None,
}));

/// For `plugin!`.
#[doc(hidden)]
pub fn declare(wants: u32, names: &'static str) -> *const Declaration {
    let state = unsafe { &mut *STATE.0.get() };
    state.names = names;
    state.declaration = Declaration {
        wants,
        names: names.as_ptr() as usize as u32,
        names_len: names.len() as u32,
        buffer: state.buffer.as_ptr() as usize as u32,
        buffer_len: BUFFER as u32,
    };
    &state.declaration
}

/// For `plugin!`.
#[doc(hidden)]
pub fn handle(decide: fn(&Request) -> Decision) -> u64 {
    let state = unsafe { &mut *STATE.0.get() };
    let decision = decide(&Request { buffer: &state.buffer, base: state.declaration.buffer, names: state.names });
    write(&mut state.record, &decision);
    state.decision = Some(decision);
    u64::from(&state.record as *const Record as usize as u32)
}

fn write(record: &mut Record, d: &Decision) {
    record.action = d.action;
    record.mode = d.mode;
    record.wait_ms = d.wait_ms;
    record.lease_ms = d.lease_ms;
    record.status = d.status;
    record.retry_after = d.retry_after;
    record.count = d.entries.len() as u32; // the host refuses more than it knows
    for (entry, (kind, text)) in record.entries.iter_mut().zip(&d.entries) {
        *entry = [*kind, text.as_ptr() as usize as u32, text.len() as u32];
    }
}

/// Makes a function the plugin: `plugin!(decide, [Method, Uri], ["X-Tenant"]);` names the parts and
/// headers of a request that it reads.
#[macro_export]
macro_rules! plugin {
    ($decide:path, [$($part:ident),* $(,)?], [$($header:literal),* $(,)?]) => {
        #[no_mangle]
        pub extern "C" fn reqlock_v2() -> *const $crate::Declaration {
            $crate::declare(0 $(| $crate::Part::$part as u32)*, concat!($($header, "\0"),*))
        }

        #[no_mangle]
        pub extern "C" fn handle_request() -> u64 {
            $crate::handle($decide)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as the host writes it.
    fn snapshot(parts: &[(usize, &[u8])], headers: &[(&[u8], u32)]) -> Vec<u8> {
        const BASE: u32 = 4096;
        let mut buffer = vec![0; FIELDS * 8 + headers.len() * 12];
        let put = |buffer: &mut Vec<u8>, at: usize, text: &[u8]| {
            let ptr = BASE + buffer.len() as u32;
            buffer.extend_from_slice(text);
            buffer[at..at + 4].copy_from_slice(&ptr.to_le_bytes());
            buffer[at + 4..at + 8].copy_from_slice(&(text.len() as u32).to_le_bytes());
        };
        for (field, text) in parts {
            put(&mut buffer, field * 8, text);
        }
        for (i, (text, count)) in headers.iter().enumerate() {
            let at = FIELDS * 8 + i * 12;
            put(&mut buffer, at, text);
            buffer[at + 8..at + 12].copy_from_slice(&count.to_le_bytes());
        }
        buffer
    }

    #[test]
    fn reads_a_request() {
        let buffer = snapshot(&[(0, b"GET"), (1, b"/a?b"), (5, b"body")], &[(b"one", 1), (b"a\0b", 2), (b"", 0)]);
        let r = Request { buffer: &buffer, base: 4096, names: "X-One\0X-Two\0X-None\0" };
        assert_eq!((r.method(), r.uri(), r.path(), r.host()), (&b"GET"[..], Some(&b"/a?b"[..]), Some(&b"/a"[..]), Some(&b""[..])));
        assert_eq!(r.body(), Ok(&b"body"[..]));
        assert_eq!(r.header("x-one").one(), Some(&b"one"[..]));
        assert_eq!(r.header("X-Two").one(), None);
        assert_eq!(r.header("X-Two").values().collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(r.header("X-None").values().count(), 0);
    }

    #[test]
    fn texts_that_do_not_fit_are_none() {
        let mut buffer = snapshot(&[], &[(b"", 1)]);
        for at in [8, FIELDS * 8] {
            buffer[at..at + 8].copy_from_slice(&[0, 0, 0, 0, 9, 0, 0, 0]);
        }
        buffer[5 * 8 + 4..6 * 8].copy_from_slice(&MISSING.to_le_bytes());
        let r = Request { buffer: &buffer, base: 4096, names: "X-One\0" };
        assert_eq!((r.uri(), r.body(), r.header("X-One").one()), (None, Err(NoBody), None));
        assert_eq!(r.header("X-One").values().count(), 0);
    }

    #[test]
    fn writes_a_record() {
        let state = unsafe { &mut *STATE.0.get() };
        let d = Decision::deny(429, "slow down").title("t").problem("p").reason("r").retry_after(7).field("a", "b");
        write(&mut state.record, &d);
        assert_eq!((state.record.action, state.record.status, state.record.retry_after, state.record.count), (2, 429, 7, 5));
        assert_eq!(state.record.entries[0][2], 9);
        let d = Decision::lock("k").mode(Mode::Fair).fenced();
        write(&mut state.record, &d);
        assert_eq!((state.record.mode, state.record.count, state.record.entries[1][0], state.record.entries[1][2]), (1, 2, 7, 0));
        let d = Decision::lock("k").limit(261);
        write(&mut state.record, &d);
        assert_eq!((state.record.mode, state.record.count, state.record.entries[1][0], state.record.entries[1][2]), (-1, 2, 8, 4));
        assert_eq!(d.entries[1].1, [5, 1, 0, 0]);
        let d = Decision::lock("k").key("l").mode(Mode::Write).wait_ms(1).lease_ms(2);
        write(&mut state.record, &d);
        assert_eq!((state.record.action, state.record.mode, state.record.wait_ms, state.record.lease_ms, state.record.count), (0, 4, 1, 2, 2));
    }
}
