package idempotency

import "testing"

// What becomes of a key, for each way in which a handler can end.
func TestRun_Ending(t *testing.T) {
	t.Parallel()
	names := map[ending]string{endAnswered: "answered", endUnrecorded: "unrecorded", endUnknown: "unknown", endFree: "free", endUndone: "undone"}
	for name, test := range map[string]struct {
		run  run
		want ending
	}{
		"201":                                   {run{returned: true, answered: true, stored: true}, endAnswered},
		"422":                                   {run{returned: true, answered: true, failed: true, stored: true}, endAnswered},
		"412":                                   {run{returned: true, answered: true, failed: true}, endFree},
		"an error and no answer":                {run{returned: true}, endFree},
		"a panic":                               {run{}, endUnknown},
		"201, its context has ended":            {run{returned: true, interrupted: true, answered: true, stored: true}, endAnswered},
		"400, its context has ended":            {run{returned: true, interrupted: true, answered: true, failed: true, stored: true}, endUnknown},
		"504, its context has ended":            {run{returned: true, interrupted: true, answered: true, failed: true}, endUnknown},
		"201 not stored, its context has ended": {run{returned: true, interrupted: true, answered: true}, endUnknown},
		"no answer, its context has ended":      {run{returned: true, interrupted: true}, endUnknown},
		"nothing done":                          {run{said: saidNothingDone, returned: true, answered: true, stored: true}, endUndone},
		"nothing done, no answer":               {run{said: saidNothingDone, returned: true}, endUndone},
		"nothing done, a panic":                 {run{said: saidNothingDone}, endUnknown},
		"nothing done, 201, its context has ended": {run{said: saidNothingDone, returned: true, interrupted: true, answered: true, stored: true}, endUnknown},
		"nothing done, 400, its context has ended": {run{said: saidNothingDone, returned: true, interrupted: true, answered: true, failed: true, stored: true}, endUnknown},
		"done":                             {run{said: saidDone, returned: true, answered: true, failed: true}, endAnswered},
		"done, 400, its context has ended": {run{said: saidDone, returned: true, interrupted: true, answered: true, failed: true, stored: true}, endAnswered},
		"done, no answer":                  {run{said: saidDone, returned: true}, endUnrecorded},
		"done, a panic":                    {run{said: saidDone}, endUnrecorded},
	} {
		if got := test.run.ending(); got != test.want {
			t.Errorf("%s: the key is %s, want %s", name, names[got], names[test.want])
		}
	}
}
