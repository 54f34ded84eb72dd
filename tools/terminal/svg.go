package main

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	cellWidth  = 8.4
	lineHeight = 21
	margin     = 18
	titleBar   = 34
	cellTime   = 50 * time.Millisecond // of one character of a bar
	startTime  = 600 * time.Millisecond
)

const style = `
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: #c9d1d9; }
  .head { fill: #fff; font-weight: 600; }
  .dim { fill: #8b949e; }
  .ok { fill: #3fb950; font-weight: 600; }
  .no { fill: #ff7b72; font-weight: 600; }
  .run { fill: #388bfd; }
  .wait { fill: #d29922; fill-opacity: .35; stroke: #d29922; }
  .refused { fill: #f85149; }
  @media (prefers-reduced-motion: no-preference) {
    .show { animation: show 1ms linear backwards; }
    .grow { animation: grow linear backwards; transform-box: fill-box; transform-origin: left; }
  }
  @keyframes show { from { opacity: 0 } }
  @keyframes grow { from { transform: scaleX(0) } }
`

// row matches a request of a timeline: its name, its bar, and the rest with its status.
var row = regexp.MustCompile(`^(  \S+ .*?  )(\.*#+|\.*x)( +)(\d{3})( .*)$`)

// draw returns the image.
func draw(title string, lines []line) string {
	width := utf8.RuneCountInString(title) + 2
	var all []string
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l.text))
		all = append(all, l.text)
	}
	w := float64(width)*cellWidth + 2*margin
	h := titleBar + 2*margin + (len(lines)+1)*lineHeight

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%.0f" height="%d" viewBox="0 0 %.0f %d">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>\n%s\n</desc>\n<style>%s</style>\n", escape(title), escape(strings.Join(all, "\n")), style)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%d" rx="10" fill="#0d1117" stroke="#30363d"/>`+"\n", w, h)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="17" r="5.5" fill="%s"/>`+"\n", margin+2+18*i, color)
	}
	d := drawing{b: &b, y: titleBar + margin}
	d.command(title, 0)
	section := startTime
	for _, l := range lines {
		d.y += lineHeight
		if strings.HasPrefix(l.text, "POST ") || strings.HasPrefix(l.text, "GET ") {
			section = startTime + l.at
		}
		d.line(l, section)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// A drawing writes at the height y.
type drawing struct {
	b *strings.Builder
	y int
}

// line draws one line of output. section is when the demonstration that it belongs to began.
func (d *drawing) line(l line, section time.Duration) {
	at := startTime + l.at
	part := row.FindStringSubmatch(l.text)
	switch {
	case part != nil:
		d.row(part[1:], section)
	case section == at:
		d.text("head", 0, l.text, at)
	case strings.HasPrefix(l.text, "$ "):
		d.command(l.text[2:], at)
	case strings.HasPrefix(l.text, "  . waits"):
		d.legend(l.text, at)
	case l.text != "":
		d.text("dim", 0, l.text, at)
	}
}

// command draws a prompt and what is typed there.
func (d *drawing) command(text string, at time.Duration) {
	d.text("dim", 0, "$ ", at)
	d.text("head", 2, text, at)
}

// row draws a request of a timeline, which began at that time: each character of the bar is drawn
// when it happened, and the status after the last.
func (d *drawing) row(part []string, at time.Duration) {
	label, bar, gap, status, rest := part[0], part[1], part[2], part[3], part[4]
	d.text("", 0, label, at)
	column := utf8.RuneCountInString(label)
	waits := strings.Count(bar, ".")
	end := at + time.Duration(len(bar))*cellTime
	d.bar("wait", column, waits, at)
	if strings.HasSuffix(bar, "x") {
		end = at + time.Duration(waits)*cellTime
		d.bar("refused", column+waits, 1, end)
	} else {
		d.bar("run", column+waits, len(bar)-waits, at+time.Duration(waits)*cellTime)
	}
	column += len(bar) + len(gap)
	class := "ok"
	if status >= "400" {
		class = "no"
	}
	d.text(class, column, status, end)
	d.text("dim", column+len(status), rest, end)
}

// legend draws what the bars mean: ". waits   # runs   x is refused   (one for 50ms)".
func (d *drawing) legend(text string, at time.Duration) {
	for _, key := range [][2]string{{" . ", "wait"}, {" # ", "run"}, {" x ", "refused"}} {
		d.bar(key[1], strings.Index(text, key[0])+1, 1, at)
		text = strings.Replace(text, key[0], "   ", 1)
	}
	d.text("dim", 0, text, at)
}

// bar draws a bar that grows from that time on.
func (d *drawing) bar(class string, column, cells int, at time.Duration) {
	if cells == 0 {
		return
	}
	fmt.Fprintf(d.b, `<rect class="%s grow" x="%.1f" y="%d" width="%.1f" height="12" rx="2" style="animation-delay:%dms;animation-duration:%dms"/>`+"\n",
		class, margin+float64(column)*cellWidth, d.y-10, float64(cells)*cellWidth-1, at.Milliseconds(), (time.Duration(cells) * cellTime).Milliseconds())
}

// text draws a text that appears at that time.
func (d *drawing) text(class string, column int, text string, at time.Duration) {
	indent := len(text) - len(strings.TrimLeft(text, " "))
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	fmt.Fprintf(d.b, `<text class="%s" x="%.1f" y="%d" textLength="%.1f" style="animation-delay:%dms">%s</text>`+"\n",
		strings.TrimSpace(class+" show"), margin+float64(column+indent)*cellWidth, d.y, float64(utf8.RuneCountInString(text))*cellWidth, at.Milliseconds(), escape(text))
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes all
	return strings.ReplaceAll(b.String(), "&#xA;", "\n")
}
