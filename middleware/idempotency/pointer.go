package idempotency

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A pointerTree holds JSON pointers, RFC 6901, by the places in a document that they lead through.
type pointerTree struct {
	ends     []int // the numbers of the pointers that lead here
	branches []branch
}

// A branch leads to the member of an object or, unless index is -1, to an element of an array.
type branch struct {
	name  []byte
	index int
	tree  *pointerTree
}

// wholeDocument has one pointer, which leads to the document itself.
var wholeDocument = &pointerTree{ends: []int{0}}

func (t *pointerTree) add(path []string, pointer int) {
	if len(path) == 0 {
		t.ends = append(t.ends, pointer)
		return
	}
	for _, b := range t.branches {
		if string(b.name) == path[0] {
			b.tree.add(path[1:], pointer)
			return
		}
	}
	index, err := strconv.Atoi(path[0])
	if err != nil || index < 0 || strconv.Itoa(index) != path[0] {
		index = -1
	}
	b := branch{name: []byte(path[0]), index: index, tree: &pointerTree{}}
	t.branches = append(t.branches, b)
	b.tree.add(path[1:], pointer)
}

// pointers is how many there are.
func (t *pointerTree) pointers() int {
	n := len(t.ends)
	for _, b := range t.branches {
		n += b.tree.pointers()
	}
	return n
}

// wanted reports whether a pointer leads here, and no further. A nil tree has no pointers.
func (t *pointerTree) wanted() bool { return t != nil && len(t.ends) > 0 }

// member follows the tree to a member; nil: no pointer leads there. It is not ok if a pointer leads to a member whose name differs
// only in its case.
func (t *pointerTree) member(name []byte) (tree *pointerTree, ok bool) {
	if t == nil {
		return nil, true
	}
	for _, b := range t.branches {
		switch {
		case bytes.Equal(b.name, name):
			tree = b.tree
		case bytes.EqualFold(b.name, name):
			return nil, false
		}
	}
	return tree, true
}

// element follows the tree to an element of an array; nil: no pointer leads there.
func (t *pointerTree) element(index int) *pointerTree {
	if t == nil {
		return nil
	}
	for _, b := range t.branches {
		if b.index == index {
			return b.tree
		}
	}
	return nil
}

func parsePointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' || strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~") {
		return nil, fmt.Errorf(`Fingerprint has FingerprintFields(%q), which is no JSON pointer; want one such as "/order/id", with ~0 for a tilde and ~1 for a slash in a name`, pointer)
	}
	path := strings.Split(pointer[1:], "/")
	for i, token := range path {
		path[i] = strings.NewReplacer("~0", "~", "~1", "/").Replace(token)
	}
	return path, nil
}
