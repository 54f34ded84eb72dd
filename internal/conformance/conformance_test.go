package conformance_test

import (
	"testing"

	"github.com/reqlock/reqlock/internal/conformance"
)

var frameworks = []conformance.Adapter{onMux, onChi, onGin, onEcho}

func TestMain(m *testing.M) { conformance.Main(m, frameworks...) }

// Every behaviour in every framework; with -v, the table of them is printed in the end.
func TestConformance(t *testing.T) { conformance.Run(t, frameworks...) }

func TestHeavy(t *testing.T) { conformance.RunHeavy(t, onMux) }
