package main

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/browser"
)

var pictures = flag.String("pictures", "", "write pictures of the page to this `directory`")

// picture writes a picture of the page if the test has -pictures.
func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	full, err := png.Decode(bytes.NewReader(p.Picture()))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, withFewColors(full)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, "payments-"+name+".png"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withFewColors returns the picture in its most frequent colors, which makes the file small.
func withFewColors(full image.Image) image.Image {
	counts := make(map[color.Color]int)
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			counts[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	few := image.NewPaletted(full.Bounds(), color.Palette(colors[:min(len(colors), 64)]))
	draw.Draw(few, full.Bounds(), full, image.Point{}, draw.Src)
	return few
}

func verdicts(p *browser.Page) [2]string {
	return [2]string{p.Text("#without .verdict .text"), p.Text("#with .verdict .text")}
}

const finished = `document.querySelector('#status').textContent.startsWith('Without reqlock:')`

func TestPageAfterACrash(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := browser.Open(t, s.url)
	p.View(browser.View{Width: 1200, Height: 1040})
	var before, after struct{ Footer, Lanes int }
	const layout = `({footer: document.querySelector('footer').offsetTop, lanes: document.querySelectorAll('.lane').length})`
	p.Await(`document.readyState === 'complete' && document.querySelector('details').open`)
	p.Eval(layout, &before)
	p.Click("#crash")
	p.Await(`document.querySelector('#with .stale')`)
	p.Await(finished)
	if p.Eval(layout, &after); before != after || before.Lanes != 8 {
		t.Errorf("the page moved: %+v at rest, %+v after the payment", before, after)
	}

	if got, want := verdicts(p), [2]string{"Charged twice", "Charged once"}; got != want {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	for selector, want := range map[string][]string{
		"#without ol": {"Click 1 on Pay.", "The server crashed.", "Click 1 gets no answer.", "A new server runs", "Click 2 is answered: 201."},
		"#with ol":    {"The server crashed.", "Click 1 gets no answer.", "Click 2 waits", "The bank knows this payment", "Click 2 is answered: 201."},
		"#status":     {"Without reqlock: charged twice. With reqlock: charged once."},
	} {
		text := p.Text(selector)
		for _, line := range want {
			if !strings.Contains(text, line) {
				t.Errorf("%s has no %q:\n%s", selector, line, text)
			}
		}
	}
	picture(t, p, "crash")
	p.View(browser.View{Width: 1200, Height: 1040, Dark: true})
	picture(t, p, "crash-dark")
	p.View(browser.View{Width: 390, Height: 1080, Phone: true})
	p.Await(`!document.querySelector('details').open`)
	picture(t, p, "crash-phone")
	checkFits(t, p)
	s.wantLedger(3, 4)
	s.program.Until(t, "The API crashed")
	s.stop()
}

// checkFits fails the test if a phone must scroll sideways.
func checkFits(t *testing.T, p *browser.Page) {
	t.Helper()
	var wide bool
	p.Eval("document.documentElement.scrollWidth > 390", &wide) // innerWidth grows with the page
	if wide {
		t.Error("the page is wider than a phone")
	}
}

// The keyboard is enough: Tab reaches the buttons and Enter presses them.
func TestPageByKeyboard(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := browser.Open(t, s.url)
	p.View(browser.View{Width: 1200, Height: 900})
	p.Press("Tab")
	p.Press("Tab")
	var focus string
	if p.Eval("document.activeElement.id", &focus); focus != "double" {
		t.Fatalf("the second Tab reaches %q", focus)
	}
	p.Press("Enter")
	p.Press("Enter") // while the first is running, it does nothing
	p.Await(finished)
	if got, want := verdicts(p), [2]string{"Charged twice", "Charged once"}; got != want {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if text := p.Text("#with ol"); !strings.Contains(text, "Click 2 gets the first answer again: 201.") {
		t.Errorf("no replay in:\n%s", text)
	}
	picture(t, p, "double")
	s.wantLedger(3, 3)
	s.stop()
}

// An address cannot pay: opening one, with any fragment or query, changes nothing.
func TestPageDoesNothingByItself(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := browser.Open(t, s.url+"/?crash=1#crash")
	p.Await(`events.readyState === EventSource.OPEN`)
	if text := p.Text("#status"); !strings.HasPrefix(text, "Press a button") {
		t.Errorf("the page says %q", text)
	}
	s.wantLedger(0, 0)
	s.stop()
}

// A page whose server has ended says so, and how to go on.
func TestPageWhenTheServerHasEnded(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := browser.Open(t, s.url)
	p.Await(`events.readyState === EventSource.OPEN`)
	s.stop()
	p.Await(`document.querySelector('#status').textContent.startsWith('The server has ended.')`)
	p.Click("#crash")
	var sent bool
	if p.Eval(`run !== null`, &sent); sent {
		t.Error("a click is sent to a server that has ended")
	}
}
