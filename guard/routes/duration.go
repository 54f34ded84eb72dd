package routes

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that is written as Go writes it, such as "2s" or "1h30m".
type Duration time.Duration

// String returns the duration as Go writes it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a text such as "2s", or 0.
func (d *Duration) UnmarshalJSON(src []byte) error {
	var text string
	if string(src) == "0" {
		text = "0"
	} else if err := json.Unmarshal(src, &text); err != nil {
		return fmt.Errorf("reqlock: routes: %s is not a duration; want a text such as \"2s\"", src)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("reqlock: routes: %q is not a duration; want one such as \"2s\"", text)
	}
	*d = Duration(parsed)
	return nil
}
