package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

const patience = 30 * time.Second

// TestDrill is the deployment of compose.yaml without containers: a redis-server, two instances of
// the service, Prometheus with the alerts, and the command. A stuck lock is found and freed, and
// Redis goes away and comes back.
func TestDrill(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build(t, bin, ".", "./orders")
	build(t, bin, "..", "./cmd/reqlock")
	redis := redistest.Start(t)
	web1 := startOrders(t, bin, redis.Addr(), "web-1", "otel")
	web2 := startOrders(t, bin, redis.Addr(), "web-2", "prom")
	prom := startPrometheus(t, web1.addr, web2.addr)
	command := func(args ...string) (string, int) { return reqlock(t, bin, redis.Addr(), args...) }

	// A handler of web-1 hangs with the lock of order 42, so web-2 refuses the order.
	hung := make(chan int, 1)
	go func() { hung <- web1.post(t, "/orders/42/pay?take=10m") }()
	await(t, "the hung handler", func() bool { out, _ := command("ls"); return strings.Contains(out, "reqlock:order:42") })
	if status := web2.post(t, "/orders/42/pay"); status != http.StatusConflict {
		t.Errorf("the second order: %d", status)
	}
	web2.wantMetric(t, `reqlock_requests_total{http_route="/orders/{id}/pay",reqlock_problem="wait-timeout"} 1`)
	web1.wantMetric(t, `reqlock_locks_held{reqlock_client="",reqlock_kind="lock"} 1`)

	// The alert for a stuck lock names the instance. Its page, and the command of
	// docs/guides/commands.md, tell which of its locks it is, and for which route and request. A
	// younger lock comes second.
	stuckOn := prom.awaitInstance(t, `topk(1, max by (job, instance, reqlock_kind) (reqlock_locks_oldest_seconds{reqlock_client!="leaders"}) > 0)`)
	if stuckOn != web1.addr {
		t.Errorf("the alert names %s, not %s", stuckOn, web1.addr)
	}
	young := make(chan int, 1)
	go func() { young <- web1.post(t, "/orders/41/pay?take=10s") }() // longer than the list and the page take
	await(t, "two locks in the list of the command in docs/guides/commands.md", func() bool {
		lines := longest(t, stuckOn)
		return len(lines) == 2 && strings.Contains(lines[0], "\treqlock:order:42\tPOST /orders/{id}/pay\t/orders/42/pay?take=10m") && strings.Contains(lines[1], "\treqlock:order:41\t")
	})
	_, list, _ := strings.Cut(fetch(t, "http://"+stuckOn+"/debug/locks/"), "Held longest in this process")
	if first := strings.Index(list, "reqlock:order:42"); first < 0 || first > strings.Index(list, "reqlock:order:41") {
		t.Errorf("the page does not show order 42 first: %s", list)
	}
	if status := awaitValue(t, "the younger order", young); status != http.StatusOK {
		t.Errorf("the younger order: %d", status)
	}

	// The command shows that web-1 has it.
	out, code := command("show", "reqlock:order:42", "--json")
	var lock struct {
		Name    string
		Kind    string
		Holders []struct{ Client string }
	}
	if err := json.Unmarshal([]byte(out), &lock); err != nil || code != 0 {
		t.Fatalf("show: exit code %d, %v: %s", code, err, out)
	}
	if lock.Name != "reqlock:order:42" || len(lock.Holders) != 1 || !strings.HasPrefix(lock.Holders[0].Client, "web-1.") {
		t.Errorf("show: %s", out)
	}
	if out, code := command("show", "reqlock:order:43"); code != 1 {
		t.Errorf("show of a free lock: exit code %d: %s", code, out)
	}
	if out, code := command("doctor"); code != 0 {
		t.Errorf("doctor: exit code %d: %s", code, out)
	}

	// Prometheus has seen that web-1 holds it. An alert on a counter needs a value from before the
	// change.
	prom.awaitValue(t, fmt.Sprintf("reqlock_locks_held{instance=%q, reqlock_kind=\"lock\", reqlock_client=\"\"} == 1", web1.addr))

	// Freed, the handler ends, and web-1 has lost a lock. Prometheus raises the alert.
	if out, code := command("unlock", "reqlock:order:42", "--reason", "a drill", "--yes"); code != 0 {
		t.Fatalf("unlock: exit code %d: %s", code, out)
	}
	if status := awaitValue(t, "the hung handler's answer", hung); status != http.StatusServiceUnavailable {
		t.Errorf("the hung order: %d", status)
	}
	if status := web2.post(t, "/orders/42/pay?take=1ms"); status != http.StatusOK {
		t.Errorf("the order afterwards: %d", status)
	}
	web1.wantMetric(t, `reqlock_locks_lost_total{reqlock_client=""} 1`)
	prom.wantAlert(t, "ReqlockLocksLost", web1.addr)

	// Redis goes away: orders are refused, and the instances are alive but not ready.
	if web2.get(t, "/readyz") != http.StatusOK {
		t.Error("web-2 is not ready")
	}
	redis.Kill(t)
	if status := web2.post(t, "/orders/7/pay"); status != http.StatusServiceUnavailable {
		t.Errorf("without Redis: %d", status)
	}
	if ready, alive := web2.get(t, "/readyz"), web2.get(t, "/healthz"); ready != http.StatusServiceUnavailable || alive != http.StatusOK {
		t.Errorf("without Redis: /readyz %d, /healthz %d", ready, alive)
	}
	if out, code := command("ls"); code != 3 {
		t.Errorf("ls without Redis: exit code %d: %s", code, out)
	}
	if !web2.hasMetric(t, regexp.MustCompile(`(?m)^reqlock_redis_errors_total\{error_type="[a-z_]+",reqlock_client=""\} [1-9]`)) {
		t.Error("web-2 has no errors of Redis in its metrics")
	}

	// It comes back, and so do locks.
	redis.Restart(t)
	await(t, "orders after the restart", func() bool { return web2.post(t, "/orders/7/pay?take=1ms") == http.StatusOK })
	await(t, "readiness after the restart", func() bool { return web1.get(t, "/readyz") == http.StatusOK })

	// SIGTERM ends an instance once its handlers have returned.
	slow := make(chan int, 1)
	go func() { slow <- web1.post(t, "/orders/8/pay?take=5s") }()
	await(t, "the last order", func() bool { out, _ := command("ls"); return strings.Contains(out, "reqlock:order:8") })
	web1.stop(t)
	if status := awaitValue(t, "the last order's answer", slow); status != http.StatusOK {
		t.Errorf("the last order: %d", status)
	}
	if out, _ := command("ls", "reqlock:"); strings.Contains(out, "web-1.") {
		t.Errorf("web-1 has left locks: %s", out)
	}
}

// longest runs the command of docs/guides/commands.md for an instance, and returns its lines: the
// locks that the instance holds, longest first.
func longest(t *testing.T, addr string) []string {
	t.Helper()
	command := regexp.MustCompile("(?ms)^```sh\n(curl [^`]*locks\\.json.*?)^```$").FindStringSubmatch(read(t, "../docs/guides/commands.md"))
	if command == nil || !strings.Contains(command[1], "http://web-1:8080/") {
		t.Fatal("docs/guides/commands.md has no command for locks.json of http://web-1:8080")
	}
	out, err := exec.Command("sh", "-c", strings.Replace(command[1], "web-1:8080", addr, 1)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "not found") {
		t.Fatalf("%v: %s; scripts/install-prometheus.sh installs jq and curl", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func build(t *testing.T, bin, dir, program string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", bin, program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v: %s", program, err, out)
	}
}

// An instance is a process of the service.
type instance struct {
	cmd   *exec.Cmd
	addr  string
	ended chan error
}

func startOrders(t *testing.T, bin, redisAddr, host, exporter string) *instance {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "orders"), "-addr", "127.0.0.1:0", "-metrics", exporter, "-client", host)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+redisAddr)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i := &instance{cmd: cmd, ended: make(chan error, 1)}
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if _, found, ok := strings.Cut(lines.Text(), "url=http://"); ok {
				address <- found
			}
		}
		i.ended <- cmd.Wait()
	}()
	ended := i.ended
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	i.addr = awaitValue(t, host+" to listen", address)
	return i
}

// stop sends SIGTERM and waits for a clean end.
func (i *instance) stop(t *testing.T) {
	t.Helper()
	if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := awaitValue(t, "the instance to end", i.ended)
	if err != nil {
		t.Errorf("the instance ended with %v", err)
	}
	i.ended <- err // for the clean-up
}

// post returns the status of the answer; 0: there was none.
func (i *instance) post(t *testing.T, path string) int { return i.do(t, http.MethodPost, path) }

func (i *instance) get(t *testing.T, path string) int { return i.do(t, http.MethodGet, path) }

func (i *instance) do(t *testing.T, method, path string) int {
	r, err := http.NewRequest(method, "http://"+i.addr+path, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	r.Close = true
	r.Header.Set("X-Request-Id", path)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func (i *instance) metrics(t *testing.T) string { return fetch(t, "http://"+i.addr+"/metrics") }

// wantMetric checks a series. Labels without a value may be missing.
func (i *instance) wantMetric(t *testing.T, line string) {
	t.Helper()
	series, value, _ := strings.Cut(line, "} ")
	want := labelsOf(series)
	for _, got := range strings.Split(i.metrics(t), "\n") {
		if of, v, ok := strings.Cut(got, "} "); ok && v == value && slices.Equal(labelsOf(of), want) {
			return
		}
	}
	t.Errorf("there is no %s in\n%s", line, grep(i.metrics(t), strings.Split(line, "{")[0]))
}

// labelsOf returns the name of a series and its labels that have values, in order.
func labelsOf(series string) []string {
	name, labels, _ := strings.Cut(series, "{")
	all := []string{name}
	for _, label := range regexp.MustCompile(`[a-z_]+="[^"]*"`).FindAllString(labels, -1) {
		if !strings.HasSuffix(label, `=""`) && !strings.HasPrefix(label, "otel_scope_") {
			all = append(all, label)
		}
	}
	slices.Sort(all[1:])
	return all
}

func grep(text, part string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (i *instance) hasMetric(t *testing.T, pattern *regexp.Regexp) bool {
	return pattern.MatchString(i.metrics(t))
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// reqlock runs the command and returns its output and exit code.
func reqlock(t *testing.T, bin, redisAddr string, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "reqlock"), args...)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+redisAddr)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		return out.String() + problems.String(), exit.ExitCode()
	}
	return out.String(), 0
}

// A prometheusServer is one with the alerts of prometheus/alerts.yml.
type prometheusServer struct{ url string }

func startPrometheus(t *testing.T, targets ...string) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: orders, static_configs: [{targets: [%s]}]}]\n", rules, strings.Join(targets, ", "))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--log.level=info")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; run scripts/install-prometheus.sh", err)
	}
	address, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		listening := regexp.MustCompile(`msg="?Listening on"? address=(\S+)`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				select {
				case address <- "http://" + found[1]:
				default:
				}
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return &prometheusServer{awaitValue(t, "Prometheus to listen", address)}
}

// awaitValue waits until a query has a result.
func (p *prometheusServer) awaitValue(t *testing.T, query string) {
	t.Helper()
	await(t, query, func() bool {
		return strings.Contains(fetch(t, p.url+"/api/v1/query?query="+url.QueryEscape(query)), `"value":[`)
	})
}

// awaitInstance waits until a query has a result, and returns the label instance of its first.
func (p *prometheusServer) awaitInstance(t *testing.T, query string) string {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	await(t, query, func() bool {
		err := json.Unmarshal([]byte(fetch(t, p.url+"/api/v1/query?query="+url.QueryEscape(query))), &answer)
		return err == nil && len(answer.Data.Result) > 0
	})
	return answer.Data.Result[0].Metric["instance"]
}

// wantAlert waits until an alert fires for an instance.
func (p *prometheusServer) wantAlert(t *testing.T, name, instance string) {
	t.Helper()
	await(t, "the alert "+name, func() bool {
		var answer struct {
			Data struct {
				Alerts []struct {
					Labels map[string]string
					State  string
				}
			}
		}
		if json.Unmarshal([]byte(fetch(t, p.url+"/api/v1/alerts")), &answer) != nil {
			return false
		}
		for _, a := range answer.Data.Alerts {
			if a.Labels["alertname"] == name && a.Labels["instance"] == instance && a.State == "firing" {
				return true
			}
		}
		return false
	})
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func awaitValue[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
	}
	return v
}
