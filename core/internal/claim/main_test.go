package claim

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Strict = true
	os.Exit(m.Run())
}
