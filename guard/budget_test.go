package guard

import (
	"fmt"
	"strings"
	"testing"
)

func TestSetBodyBudget_Invalid(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "reqlock: guard: SetBodyBudget(-2): want ") {
			t.Errorf("panics with %s", text)
		}
	}()
	SetBodyBudget(-2)
}
