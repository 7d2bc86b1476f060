// Writes over a device that C opens, from and to memory that C allocates, while Go collects its garbage and starts
// processes. Prints whether that memory was shared or private.
package main

/*
#include <stdlib.h>
void guest_open(void);
void *guest_take(size_t length);
void guest_give(void *memory);
int guest_is_shared(void *memory);
void guest_write(void *from, void *to, size_t length);
*/
import "C"

import (
	"fmt"
	"log"
	"os/exec"
	"runtime"
	"sync"
	"unsafe"
)

const (
	words  = 3*512 + 5
	length = words * 8
	blocks = 32
	rounds = 8
)

func word(tag, at int) uint64 {
	return (uint64(tag)*0x9e3779b97f4a7c15 ^ uint64(at)) * 0xff51afd7ed558ccd
}

func fill(memory unsafe.Pointer, tag int) {
	for at, all := 0, unsafe.Slice((*uint64)(memory), words); at < words; at++ {
		all[at] = word(tag, at)
	}
}

func check(memory unsafe.Pointer, tag int) {
	for at, all := 0, unsafe.Slice((*uint64)(memory), words); at < words; at++ {
		if all[at] != word(tag, at) {
			log.Fatalf("word %d of %d is not what was written", at, tag)
		}
	}
}

// Starts a process, which answers.
func start(tag int) {
	told := fmt.Sprint(tag)
	said, err := exec.Command("echo", "-n", told).Output()
	if err != nil || string(said) != told {
		log.Fatalf("a process said %q, %v", said, err)
	}
}

func main() {
	C.guest_open()
	var all [blocks]unsafe.Pointer
	for at := range all {
		all[at] = C.guest_take(length)
	}
	shared := C.guest_is_shared(all[0])
	for round := 0; round < rounds; round++ {
		var others sync.WaitGroup
		for other := 0; other < 4; other++ {
			others.Add(1)
			go func(tag int) {
				defer others.Done()
				own := C.guest_take(length)
				fill(own, tag)
				start(tag)
				check(own, tag)
				C.guest_give(own)
			}(round*10 + other)
		}
		for at := range all {
			fill(all[at], round*100+at)
		}
		for at := 0; at < blocks; at += 2 {
			C.guest_write(all[at], all[at+1], length)
		}
		runtime.GC()
		others.Wait()
		for at := range all {
			check(all[at], round*100+at/2*2)
			if C.guest_is_shared(all[at]) != shared {
				log.Fatal("some is shared, some is private")
			}
		}
		for at := round % 4; at < blocks; at += 4 {
			C.guest_give(all[at])
			all[at] = C.guest_take(length)
		}
	}
	for at := range all {
		C.guest_give(all[at])
	}
	fmt.Println(map[bool]string{true: "shared", false: "private"}[shared != 0])
}
