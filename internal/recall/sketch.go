package recall

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// SketchBits is the length of a sketch.
const SketchBits = 1024

// minTurned is to how many components a shorter vector is filled up with zeros: of
// very few a Hadamard transform leaves some empty.
const minTurned = 64

// ErrDirection: a vector is empty, zero, or has a component that is no number, so
// nothing can be compared with it by cosine.
var ErrDirection = errors.New("vector has no direction: it is empty, zero, or has a component that is not a finite number")

// Unit returns a copy of a vector, scaled to length 1: ErrDirection.
func Unit(vector []float32) ([]float32, error) {
	var sum float64
	for _, x := range vector {
		sum += float64(float64(x) * float64(x)) // Not fused, which depends on the machine.
	}
	if sum == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return nil, fmt.Errorf("%w (dimension %d)", ErrDirection, len(vector))
	}
	unit := make([]float32, len(vector))
	for i, x := range vector {
		unit[i] = float32(float64(x) / math.Sqrt(sum))
	}
	return unit, nil
}

// Sketch returns a short likeness of a vector: SketchBits bits, of which two
// vectors have the fewer in common the wider the angle between them is (Charikar,
// "Similarity estimation techniques from rounding algorithms", STOC 2002). Those
// near in sketch are then compared by their vectors. Each bit is the side of a
// random hyperplane; the hyperplanes are those of a randomized Hadamard transform
// (Ailon and Chazelle, "The fast Johnson-Lindenstrauss transform", SICOMP 2009).
//
// Sketches are stored: the same vector has the same sketch for ever. It takes about
// 20 us for 768 dimensions.
func Sketch(vector []float32) []byte {
	size := 1 << bits.Len(uint(max(len(vector), minTurned)-1))
	sketch := make([]byte, SketchBits/8)
	turned := make([]float32, size)
	signs := splitMix(0)
	for have := 0; have < SketchBits; have += size {
		clear(turned)
		copy(turned, vector)
		// Twice: one round leaves the few components of a sparse vector alike.
		for range 2 {
			signs.flip(turned)
			hadamard(turned)
		}
		for i := range min(size, SketchBits-have) {
			if turned[i] > 0 {
				sketch[(have+i)/8] |= 0x80 >> ((have + i) % 8)
			}
		}
	}
	return sketch
}

// hadamard is the Walsh-Hadamard transform without its scale; the length is a
// power of two.
func hadamard(x []float32) {
	for half := 1; half < len(x); half *= 2 {
		for begin := 0; begin < len(x); begin += 2 * half {
			for i := begin; i < begin+half; i++ {
				x[i], x[i+half] = x[i]+x[i+half], x[i]-x[i+half]
			}
		}
	}
}

// splitMix is the generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It is
// written here because what it makes must never change.
type splitMix uint64

func (s *splitMix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// flip changes the sign of every second component, by chance.
func (s *splitMix) flip(x []float32) {
	var word uint64
	for i := range x {
		if i%64 == 0 {
			word = s.next()
		}
		if word>>(i%64)&1 == 1 {
			x[i] = -x[i]
		}
	}
}
