package main

import "syscall"

// endWithParent makes Linux do what --on-lost says if reqlock itself is killed: nothing renews the
// lock then.
func endWithParent(attr *syscall.SysProcAttr, onLost string) {
	switch onLost {
	case onLostTerm:
		attr.Pdeathsig = syscall.SIGTERM
	case onLostKill:
		attr.Pdeathsig = syscall.SIGKILL
	}
}
