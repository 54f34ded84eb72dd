package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate sends the same requests before and after a change of the file, and tries a change
// that has a mistake.
func (s *server) demonstrate(ctx context.Context, base string) error {
	fmt.Println("\nPOST /reports/{id}: the file says wait: 0, so the second request for a report is refused")
	if err := collide(ctx, base); err != nil {
		return err
	}

	fmt.Println("\nThe file is changed to wait: a while. That is a mistake, and the server keeps the version it has:")
	err := s.change("a while")
	if err == nil {
		return errors.New("the server accepts wait: a while")
	}
	fmt.Printf("\n    %s\n", strings.ReplaceAll(err.Error(), filepath.Dir(s.path)+string(filepath.Separator), ""))

	fmt.Println("\nThe file is changed to wait: 5s, so the second request waits for the first")
	if err := s.change("5s"); err != nil {
		return err
	}
	if err := collide(ctx, base); err != nil {
		return err
	}
	fmt.Printf("\n%s\n", demo.Legend)
	return nil
}

// change writes another wait time into the file and loads it, as SIGHUP does.
func (s *server) change(wait string) error {
	if err := s.write(strings.Replace(locksYAML, "wait: 0", "wait: "+wait, 1)); err != nil {
		return err
	}
	return s.file.Reload()
}

// collide sends two requests for one report, and one for another.
func collide(ctx context.Context, base string) error {
	var requests []*demo.Request
	for i, report := range []string{"daily", "daily", "weekly"} {
		requests = append(requests, &demo.Request{
			Name:  string(rune('A' + i)),
			What:  report,
			Path:  "/reports/" + report,
			After: time.Duration(i) * 50 * time.Millisecond,
		})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	demo.Show(requests)
	return nil
}

// invitation returns the commands to try by hand.
func (s *server) invitation(base string) string {
	post := "curl -i -X POST " + base + "/reports/daily"
	return "edit " + s.path + "; " + post + " & " + post + "; wait"
}
