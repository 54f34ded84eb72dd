package caddylock_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait. Nothing waits for it to pass. On a busy machine, Caddy takes more
// than a minute to compile a plugin under the race detector.
const patience = 3 * time.Minute

// A process is Caddy, as a child of the test.
type process struct {
	cmd     *exec.Cmd
	dir     string
	port    string
	log     *processLog
	admin   *http.Client // of the admin endpoint
	client  *http.Client // of the sites, by HTTP/1.1 without TLS
	ended   chan struct{}
	exitErr error // when ended is closed
}

// A processLog is the log of a process.
type processLog struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{} // closed at the next line
}

func (j *processLog) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	close(j.grown)
	j.grown = make(chan struct{})
}

// find returns the first line that contains text, and what ends when there are more lines.
func (j *processLog) find(text string) (line string, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.IndexFunc(j.lines, func(line string) bool { return strings.Contains(line, text) }); i >= 0 {
		return j.lines[i], nil
	}
	return "", j.grown
}

func (j *processLog) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// globals are the global options of all tests, before those of the test. Every Caddyfile may use
// {$PORT}.
const globals = `
	admin unix/{$ADMIN}
	skip_install_trust
	persist_config off
	auto_https disable_redirects
	default_bind 127.0.0.1
`

// caddyfile returns a whole Caddyfile with one site at {$PORT}.
func caddyfile(global, site string) string {
	return "{\n" + globals + global + "\n}\nhttp://:{$PORT} {\n" + site + "\n}\n"
}

// startCaddy starts Caddy and waits until it serves. It ends with the test.
func startCaddy(t testing.TB, config string, env ...string) *process {
	t.Helper()
	for range 5 {
		p := tryStartCaddy(t, config, env)
		if p.eventuallyLogs(t, "serving initial configuration") {
			t.Cleanup(func() { p.stop(t) })
			return p
		}
		<-p.ended
		if _, more := p.log.find("address already in use"); more != nil {
			t.Fatalf("Caddy ended at once:\n%s", p.log)
		}
	}
	t.Fatal("no port is free")
	return nil
}

func tryStartCaddy(t testing.TB, config string, env []string) *process {
	t.Helper()
	// The path of a Unix socket must be short.
	dir, err := os.MkdirTemp("", "caddy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &process{dir: dir, port: freePort(t), log: &processLog{grown: make(chan struct{})}, ended: make(chan struct{})}
	p.cmd = p.command(context.Background(), "run", "--config", p.write(t, config))
	p.cmd.Env = append(p.cmd.Env, env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = p.cmd.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.log.add(lines.Text())
		}
		p.exitErr = p.cmd.Wait()
	}()
	p.admin = p.newClient(t, &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "admin.sock"))
	}})
	p.client = p.newClient(t, &http.Transport{MaxIdleConnsPerHost: 100})
	return p
}

// command returns a run of Caddy.
func (p *process) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCaddy+"=1", "PORT="+p.port, "ADMIN="+filepath.Join(p.dir, "admin.sock"),
		"XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "HOME="+p.dir)
	return cmd
}

func (p *process) write(t testing.TB, config string) (file string) {
	t.Helper()
	file = filepath.Join(p.dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (p *process) newClient(t testing.TB, transport http.RoundTripper) *http.Client {
	client := &http.Client{Transport: transport}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// eventuallyLogs waits for a line of the log. false: Caddy ended without it.
func (p *process) eventuallyLogs(t testing.TB, text string) bool {
	t.Helper()
	timeout := time.After(patience)
	for {
		_, more := p.log.find(text)
		if more == nil {
			return true
		}
		select {
		case <-more:
		case <-p.ended:
			_, more = p.log.find(text)
			return more == nil
		case <-timeout:
			t.Fatalf("no %q in the log:\n%s", text, p.log)
		}
	}
}

// stop ends Caddy as an operator does.
func (p *process) stop(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		t.Errorf("Caddy did not stop:\n%s", p.log)
	}
	if p.exitErr != nil {
		t.Errorf("Caddy ended with %v:\n%s", p.exitErr, p.log)
	}
	if _, more := p.log.find("DATA RACE"); more == nil {
		t.Errorf("Caddy has a data race:\n%s", p.log)
	}
}

// reload loads another configuration.
func (p *process) reload(t testing.TB, config string) {
	t.Helper()
	if err := p.tryReload(config); err != nil {
		t.Fatalf("reload: %v\n%s", err, p.log)
	}
}

func (p *process) tryReload(config string) error {
	// The environment of the process has PORT and ADMIN, for both ways to expand it.
	request, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/load", strings.NewReader(config))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/caddyfile")
	request.Header.Set("Cache-Control", "must-revalidate") // load it even if nothing has changed
	response, err := p.admin.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	p.client.CloseIdleConnections() // Caddy closes them, too, and one may be used just then
	return nil
}

func (p *process) url(path string) string { return "http://127.0.0.1:" + p.port + path }

// An answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
	proto  string
	err    error
}

// problem returns the problem type of an answer, without its common part; "": it has none.
func (a answer) problem() string {
	var problem struct{ Type string }
	if json.Unmarshal([]byte(a.body), &problem) != nil {
		return ""
	}
	return strings.TrimPrefix(problem.Type, "urn:reqlock:problem:")
}

func (a answer) String() string {
	return fmt.Sprintf("%d %q (%v)", a.status, a.body, a.err)
}

// send sends a request. header has names and values by turns.
func send(ctx context.Context, client *http.Client, method, url, body string, header ...string) answer {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
		} else {
			request.Header.Add(header[i], header[i+1])
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text), response.Proto, err}
}

// do sends a request to a site of Caddy.
func (p *process) do(t testing.TB, method, path string, header ...string) answer {
	t.Helper()
	a := send(t.Context(), p.client, method, p.url(path), "", header...)
	if a.err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, a.err, p.log)
	}
	return a
}

// doAsync sends a request whose answer the test does not wait for yet.
func (p *process) doAsync(t testing.TB, method, path string, header ...string) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	ctx := t.Context()
	go func() { answers <- send(ctx, p.client, method, p.url(path), "", header...) }()
	return answers
}

// get returns what the admin endpoint answers.
func (p *process) get(t testing.TB, path string) string {
	t.Helper()
	a := send(t.Context(), p.admin, http.MethodGet, "http://127.0.0.1"+path, "")
	if a.err != nil || a.status != http.StatusOK {
		t.Fatalf("admin %s: %v", path, a)
	}
	return a.body
}

// mustReceive waits for an answer that is under way.
func mustReceive(t testing.TB, answers <-chan answer) answer {
	t.Helper()
	select {
	case a := <-answers:
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a
	case <-time.After(patience):
		t.Fatal("timed out waiting for an answer")
		return answer{}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A service is a backend in another language.
type service struct {
	url    string
	client *http.Client
}

// startService starts a service of testdata.
func startService(t testing.TB, name string, args ...string) *service {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &service{client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatalf("%s did not start: %s", name, &stderr)
	}
	s.url = "http://127.0.0.1:" + lines.Text()
	return s
}

func startPython(t testing.TB) *service {
	t.Helper()
	return startService(t, "python3", "testdata/pay.py", t.TempDir())
}

// addr returns host and port.
func (s *service) addr() string { return strings.TrimPrefix(s.url, "http://") }

// A call is one run of a service.
type call struct {
	Path     string
	Overlaps bool // with another call for the path, of any service
}

func (s *service) journal(t testing.TB) (calls []call) {
	t.Helper()
	a := send(t.Context(), s.client, http.MethodGet, s.url+"/journal", "")
	if err := errors.Join(a.err, json.Unmarshal([]byte(a.body), &calls)); err != nil {
		t.Fatal(err)
	}
	return calls
}

// eventuallyCalls waits until the service was called n times.
func (s *service) eventuallyCalls(t testing.TB, n int) {
	t.Helper()
	eventually(t, "calls of the service", func() bool { return len(s.journal(t)) >= n })
}

// open opens a gate.
func (s *service) open(t testing.TB, gate string) {
	t.Helper()
	if a := send(t.Context(), s.client, http.MethodPost, s.url+"/gate/"+gate, ""); a.err != nil || a.status != http.StatusOK {
		t.Fatal(a)
	}
}

// eventuallyWaiting waits until a request waits for a plain lock.
func eventuallyWaiting(t testing.TB, rdb *redis.Client, name string) {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	eventually(t, "a waiter for "+name, func() bool {
		return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] > 0
	})
}

// eventuallyEmpty waits until no lock is left.
func eventuallyEmpty(t testing.TB, rdb *redis.Client) {
	t.Helper()
	eventually(t, "an empty Redis", func() bool {
		n, err := rdb.DBSize(t.Context()).Result()
		return err == nil && n == 0
	})
}

// tlsConfig returns the TLS settings of a client that trusts Caddy's own authority.
func (p *process) tlsConfig(t testing.TB) *tls.Config {
	t.Helper()
	p.eventuallyLogs(t, "certificate obtained successfully")
	pem, err := os.ReadFile(filepath.Join(p.dir, "caddy/pki/authorities/local/root.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	trusting := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "localhost"}
	eventually(t, "Caddy to use its certificate", func() bool {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+p.port, trusting)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	})
	return trusting
}
