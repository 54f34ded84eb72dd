// Terminal runs a command and draws its output as an SVG image of a terminal, in which each line
// appears when the command printed it. Bars of a timeline ("....####") grow in real time.
//
//	terminal -out ../docs/images/quickstart.svg -dir .. -title "go run ./examples/quickstart" -- COMMAND ARGS...
//
// The image shows everything if its reader has turned off animations.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

func main() {
	out := flag.String("out", "", "SVG `file` to write")
	dir := flag.String("dir", ".", "`directory` to run the command in")
	title := flag.String("title", "", "the command as the image shows it")
	omit := flag.String("omit", "^$a", "leave out lines that match this `pattern`")
	flag.Parse()
	if err := run(*out, *dir, *title, *omit, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(1)
	}
}

func run(out, dir, title, omit string, command []string) error {
	if len(command) == 0 || out == "" {
		return errors.New("want -out FILE and a command; see -help")
	}
	pattern, err := regexp.Compile(omit)
	if err != nil {
		return err
	}
	lines, err := record(dir, command, pattern)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(draw(title, lines)), 0o644)
}

// A line is a line of output, and when it was printed, from the first one on.
type line struct {
	text string
	at   time.Duration
}

// record runs the command and returns its lines, without those that match omit. Of empty lines in a
// row it returns one.
func record(dir string, command []string, omit *regexp.Regexp) (lines []line, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var began time.Time
	for scanner := bufio.NewScanner(output); scanner.Scan(); {
		if began.IsZero() {
			began = time.Now()
		}
		text := strings.TrimRight(scanner.Text(), " ")
		if omit.MatchString(text) || text == "" && (len(lines) == 0 || lines[len(lines)-1].text == "") {
			continue
		}
		lines = append(lines, line{text, time.Since(began)})
	}
	return lines, cmd.Wait()
}
