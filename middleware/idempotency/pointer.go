package idempotency

import (
	"bytes"

	"github.com/reqlock/reqlock/internal/jsontext"
)

// A pointerTree holds JSON pointers, RFC 6901, by the steps they share.
type pointerTree struct {
	ends     []int // the numbers of the pointers that end here
	branches []branch
}

// A branch is a step of the pointers that share it.
type branch struct {
	jsontext.Token
	tree *pointerTree
}

// wholeDocument has one pointer, to the document itself.
var wholeDocument = &pointerTree{ends: []int{0}}

func (t *pointerTree) add(path []jsontext.Token, pointer int) {
	if len(path) == 0 {
		t.ends = append(t.ends, pointer)
		return
	}
	for _, b := range t.branches {
		if bytes.Equal(b.Name, path[0].Name) {
			b.tree.add(path[1:], pointer)
			return
		}
	}
	b := branch{Token: path[0], tree: &pointerTree{}}
	t.branches = append(t.branches, b)
	b.tree.add(path[1:], pointer)
}

// pointers returns how many there are.
func (t *pointerTree) pointers() int {
	n := len(t.ends)
	for _, b := range t.branches {
		n += b.tree.pointers()
	}
	return n
}

// wanted reports whether a pointer ends here. A nil tree has no pointers.
func (t *pointerTree) wanted() bool { return t != nil && len(t.ends) > 0 }

// member follows the tree to a member; nil: no pointer leads there. false: a pointer leads to a member
// whose name differs only in case.
func (t *pointerTree) member(name []byte) (tree *pointerTree, ok bool) {
	if t == nil {
		return nil, true
	}
	for _, b := range t.branches {
		switch {
		case bytes.Equal(b.Name, name):
			tree = b.tree
		case jsontext.SameName(b.Name, name):
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
		if b.Index == index {
			return b.tree
		}
	}
	return nil
}
