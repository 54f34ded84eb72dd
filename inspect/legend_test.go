package inspect

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
)

var (
	legendSection = regexp.MustCompile(`(?s)<section class="legend".*?</section>`)
	coloredRule   = regexp.MustCompile(`(?m)^([^\n{}]+?) \{[^{}]*var\(--(?:blue|green|amber|red|violet)\)`)
	redText       = regexp.MustCompile(`<span class="bad">([^<]+)</span>`)
)

// speaking are the rules with a color whose elements say by words what they are: links, buttons and
// notes.
var speaking = map[string]bool{"a": true, ":focus-visible": true, ".note": true, ".note.bad": true, "button": true, ".button, button": true, ".button:hover": true}

// The legend explains each color that the style sheet has, each kind of lock, and each mark of the
// table.
func TestLegend(t *testing.T) {
	t.Parallel()
	page, style := asset(t, "page.html"), asset(t, "page.css")
	legend := legendSection.FindString(page)
	has := func(what, part string) {
		t.Helper()
		if !strings.Contains(legend, part) {
			t.Errorf("the legend does not explain %s: it lacks %s", what, part)
		}
	}
	// What stands in the legend for a rule that is no class of one element.
	shown := map[string]string{
		".own code":                          `<span class="own"><code>`,
		".alarm dd":                          "locks were lost",
		`#state[data-live="yes"]::before`:    "The dot is green",
		`#state[data-live="no"]::before`:     "red when not",
		"meter::-webkit-meter-optimum-value": "The bar is",
		"meter::-moz-meter-bar":              "The bar is",
	}
	rules := coloredRule.FindAllStringSubmatch(style, -1)
	if len(rules) < 12 {
		t.Fatalf("the style sheet has %d rules with a color: %v", len(rules), rules)
	}
	for _, rule := range rules {
		selector := rule[1]
		part, known := shown[selector]
		if !known { // .kind.fair is class="kind fair"
			part = `class="` + strings.ReplaceAll(strings.TrimPrefix(selector, "."), ".", " ") + `"`
		}
		if !speaking[selector] {
			has("the color of "+selector, part)
		}
	}
	for _, kind := range core.Kinds() {
		has("the kind "+kind, ">"+kind+"</span>")
	}
	content := page[strings.Index(page, `{{define "content"}}`):]
	marks := map[string]string{"–": "“–”", "}}over{{": "“over”", "<meter": "The bar is"}
	for _, text := range redText.FindAllStringSubmatch(content, -1) {
		mark := strings.TrimSuffix(text[1], ":")
		marks[text[0]] = "“" + mark + "”"
		if strings.Contains(mark, " ") { // a sentence
			marks[text[0]] = "a free lock is not taken"
		}
	}
	for mark, part := range marks {
		if !strings.Contains(content, mark) {
			t.Errorf("the page has no mark %s any more", mark)
		}
		has("the mark "+mark, part)
	}
	for _, word := range []string{"here", "elsewhere"} {
		if waiting := (waiting{Here: 1, Elsewhere: 1}).String(); !strings.Contains(waiting, word) {
			t.Errorf("%q lacks %q", waiting, word)
		}
		has("the word "+word, "“"+word+"”")
	}
}

func asset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("assets/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
