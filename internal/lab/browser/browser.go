// Package browser drives a headless Chromium in tests, over the DevTools protocol on a pipe: it
// opens a page, clicks, types, reads and takes pictures. A script error on the page fails the test.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every command. Nothing waits for it to pass.
const patience = time.Minute

// A Page is one page in a browser of its own.
type Page struct {
	t       testing.TB
	out     *os.File
	session string

	mu      sync.Mutex
	id      int
	pending map[int]chan reply
	loaded  chan struct{} // gets a value for each load event
	scripts []string      // errors of scripts
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Open starts a browser and opens a URL. It returns when the page has loaded.
func Open(t testing.TB, url string) *Page {
	t.Helper()
	p := &Page{t: t, pending: make(map[int]chan reply), loaded: make(chan struct{}, 16)}
	p.start()
	var target struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	p.Goto(url)
	return p
}

// Goto opens another URL in the same browser.
func (p *Page) Goto(url string) {
	p.t.Helper()
	for len(p.loaded) > 0 {
		<-p.loaded
	}
	var opened struct{ ErrorText string }
	p.call("Page.navigate", map[string]any{"url": url}, &opened)
	if opened.ErrorText != "" {
		p.t.Fatalf("open %s: %s", url, opened.ErrorText)
	}
	select {
	case <-p.loaded:
	case <-time.After(patience):
		p.t.Fatalf("%s did not load", url)
	}
}

// start starts the browser. It and the goroutine that reads from it end with the test.
func (p *Page) start() {
	p.t.Helper()
	in, out, err := os.Pipe() // This one leads to the browser.
	if err != nil {
		p.t.Fatal(err)
	}
	answers, back, err := os.Pipe() // This one leads back.
	if err != nil {
		p.t.Fatal(err)
	}
	p.out = out
	args := []string{
		"--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--force-color-profile=srgb", "--user-data-dir=" + p.t.TempDir(),
	}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // root cannot use the sandbox
	}
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, find(p.t), args...)
	cmd.ExtraFiles = []*os.File{in, back} // 3 and 4
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// Its helper processes may hold standard error open after it has ended.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		kill()
		p.t.Fatal(err)
	}
	_, _ = in.Close(), back.Close() // the browser has its own copies
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(bufio.NewReaderSize(answers, 1<<20))
	}()
	p.t.Cleanup(func() {
		p.closeBrowser()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = cmd.Wait()
		}()
		select {
		case <-stopped:
		case <-time.After(patience):
		}
		kill()
		<-stopped
		<-read
		_, _ = out.Close(), answers.Close()
		for _, text := range p.scripts {
			p.t.Errorf("an error on the page: %s", text)
		}
		if p.t.Failed() {
			p.t.Logf("the browser's standard error:\n%s", withoutBus(stderr.String()))
		}
	})
}

// withoutBus drops complaints about the desktop's message bus, which test machines lack.
func withoutBus(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "ERROR:dbus/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// closeBrowser asks the browser to end, which deletes its temporary files.
func (p *Page) closeBrowser() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.id++
	_, _ = fmt.Fprintf(p.out, `{"id":%d,"method":"Browser.close"}`+"\x00", p.id)
}

// read hands out what the browser sends, until it ends.
func (p *Page) read(from *bufio.Reader) {
	defer p.abandon()
	for {
		message, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var r reply
		if err := json.Unmarshal(message[:len(message)-1], &r); err != nil {
			return
		}
		p.deliver(r)
	}
}

func (p *Page) deliver(r reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case "":
		if waiting := p.pending[r.ID]; waiting != nil {
			delete(p.pending, r.ID)
			waiting <- r
		}
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Runtime.exceptionThrown":
		p.scripts = append(p.scripts, string(r.Params))
	case "Log.entryAdded":
		if text := string(r.Params); strings.Contains(text, `"source":"security"`) || strings.Contains(text, `"source":"javascript"`) {
			p.scripts = append(p.scripts, text)
		}
	}
}

// abandon ends all calls, because the browser has ended.
func (p *Page) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, waiting := range p.pending {
		close(waiting)
	}
	p.pending = nil
}

// call sends a command and stores its result in into, unless that is nil.
func (p *Page) call(method string, params, into any) {
	p.t.Helper()
	answer := make(chan reply, 1)
	p.mu.Lock()
	if p.pending == nil {
		p.mu.Unlock()
		p.t.Fatalf("%s: the browser has ended", method)
	}
	p.id++
	p.pending[p.id] = answer
	command := map[string]any{"id": p.id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if p.session != "" {
		command["sessionId"] = p.session
	}
	text, err := json.Marshal(command)
	if err == nil {
		_, err = p.out.Write(append(text, 0))
	}
	p.mu.Unlock()
	if err != nil {
		p.t.Fatal(err)
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			p.t.Fatalf("%s: the browser has ended", method)
		case r.Error != nil:
			p.t.Fatalf("%s: %s", method, r.Error.Message)
		case into != nil:
			if err := json.Unmarshal(r.Result, into); err != nil {
				p.t.Fatalf("%s: %v: %s", method, err, r.Result)
			}
		}
	case <-time.After(patience):
		p.t.Fatalf("%s: no answer within %s", method, patience)
	}
}

// Eval evaluates a JavaScript expression, waits if it is a promise, and stores its value in into,
// unless that is nil.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			p.t.Fatalf("%s: %v: %s", expression, err, r.Result.Value)
		}
	}
}

// Await waits until a JavaScript expression is true.
func (p *Page) Await(expression string) {
	p.t.Helper()
	var done bool
	p.Eval(fmt.Sprintf(`new Promise(resolve => {
		const started = Date.now()
		const check = () => (%s) ? resolve(true) : Date.now() - started > 50000 ? resolve(false) : setTimeout(check, 20)
		check()
	})`, expression), &done)
	if !done {
		var page string
		p.Eval("document.body.innerText", &page)
		p.t.Fatalf("timed out waiting for %s on:\n%s", expression, page)
	}
}

// Text returns the visible text of the element that a CSS selector finds.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	p.Eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &text)
	return text
}

// Click clicks the middle of the element that a CSS selector finds.
func (p *Page) Click(selector string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.Eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q)
		e.scrollIntoView({block: 'center'})
		const box = e.getBoundingClientRect()
		return {x: box.x + box.width / 2, y: box.y + box.height / 2}
	})()`, selector), &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// Follow clicks on a link, or on the button of a form, and waits until the page it leads to has
// loaded.
func (p *Page) Follow(selector string) {
	p.t.Helper()
	for len(p.loaded) > 0 {
		<-p.loaded
	}
	p.Click(selector)
	select {
	case <-p.loaded:
	case <-time.After(patience):
		p.t.Fatalf("%s led to no page that loads", selector)
	}
}

// Press presses Tab, Enter or Escape.
func (p *Page) Press(key string) {
	p.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}[key]
	down := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		down["text"] = "\r"
	}
	p.call("Input.dispatchKeyEvent", down, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// A View is how a reader sees the page.
type View struct {
	// Width and Height are in CSS pixels.
	Width, Height int
	Dark          bool
	Phone         bool
}

// View changes the size and the colours.
func (p *Page) View(v View) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": v.Width, "height": v.Height, "deviceScaleFactor": 1, "mobile": v.Phone,
	}, nil)
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// Picture returns what is visible, as a PNG.
func (p *Page) Picture() []byte {
	p.t.Helper()
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &shot)
	image, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return image
}

// find returns the path of the browser; see scripts/install-test-tools.sh.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("chromium is missing: run make test-tools")
	return ""
}
