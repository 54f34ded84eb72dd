package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A child is this program, started again for work that needs its own process. It exits when done.
type child struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

func startChild(args ...string) (*child, error) {
	c, err := newChild(args...)
	if err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

func newChild(args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, append([]string{"-child"}, args...)...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.output, os.Stderr
	return c, nil
}

// wait reads the child's answer when it is done.
func (c *child) wait(answer any) error {
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the second process: %w", err)
	}
	return json.Unmarshal(c.output.Bytes(), answer)
}

func (c *child) counts() (counts []int, err error) { return counts, c.wait(&counts) }

// runChild does the child's work. args are those of startChild.
func runChild(args []string) error {
	var answer any
	var err error
	switch {
	case len(args) == 5 && args[0] == "fight":
		var start int64
		var length time.Duration
		if start, err = strconv.ParseInt(args[3], 10, 64); err != nil {
			return err
		}
		if length, err = time.ParseDuration(args[4]); err != nil {
			return err
		}
		answer, err = fightFor(args[1], args[2], time.UnixMilli(start), length)
	case len(args) == 3 && (args[0] == "load" || args[0] == "ping"):
		var length time.Duration
		if length, err = time.ParseDuration(args[2]); err != nil {
			return err
		}
		if args[0] == "load" {
			answer, err = generate(args[1], length)
		} else {
			answer, err = pingFor(args[1], length)
		}
	case len(args) == 5 && args[0] == "delay":
		return delayFor(args[1], args[2], args[3], args[4])
	case len(args) == 3 && args[0] == "pace":
		rate, errRate := strconv.Atoi(args[1])
		n, errN := strconv.Atoi(args[2])
		if err := errors.Join(errRate, errN); err != nil {
			return err
		}
		return paceFor(rate, n, os.Stdout)
	default:
		err = fmt.Errorf("the second process cannot do %q", args)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}
