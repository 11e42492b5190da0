package recall

import (
	"encoding/hex"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	got, err := Unit([]float32{3, 0, -4})
	if err != nil || got[0] != 0.6 || got[1] != 0 || got[2] != -0.8 {
		t.Errorf("%v, %v", got, err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, v := range [][]float32{nil, {0, 0}, {1, nan}, {inf, 1}, {-inf}} {
		if got, err := Unit(v); !errors.Is(err, ErrDirection) || got != nil {
			t.Errorf("%v: %v, %v", v, got, err)
		}
	}
	if got, err := Unit([]float32{math.MaxFloat32, math.MaxFloat32}); err != nil || math.Abs(float64(got[0])-math.Sqrt2/2) > 1e-6 {
		t.Errorf("large: %v, %v", got, err)
	}
	if got, err := Unit([]float32{math.SmallestNonzeroFloat32}); err != nil || got[0] != 1 {
		t.Errorf("small: %v, %v", got, err)
	}
}

// TestSketchIsForEver compares with sketches that are stored somewhere.
func TestSketchIsForEver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		vector []float32
		want   string // its first 16 bytes
	}{
		{[]float32{1}, "85b1ca077798c154110d14814ac19ea0"},
		{[]float32{0.5, -0.25, 0.125}, "a5914aa6779a6556951b15a56a959eaa"},
	} {
		if got := hex.EncodeToString(Sketch(c.vector)[:16]); got != c.want {
			t.Errorf("%v: %s, want %s", c.vector, got, c.want)
		}
	}
}

// TestSketchFollowsAngle: the share of bits that differ is the angle as a part of
// a half turn, whatever the dimension and however few components there are.
func TestSketchFollowsAngle(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, dimensions := range []int{2, 3, 64, 100, 256, 384, 512, 768, 1536, 4000} {
		for _, sparse := range []int{dimensions, 2} {
			for _, angle := range []float64{0, math.Pi / 8, math.Pi / 4, math.Pi / 2, 3 * math.Pi / 4, math.Pi} {
				const pairs = 40
				sum := 0
				for range pairs {
					a, b := pair(r, dimensions, sparse, angle)
					x, y := Sketch(a), Sketch(b)
					for i := range x {
						sum += bits.OnesCount8(x[i] ^ y[i])
					}
				}
				got, want := float64(sum)/(pairs*SketchBits), angle/math.Pi
				// Two components make few different sketches, so the mean is rougher.
				if tolerance := 0.03 + 0.12*float64(min(1, 2*8/dimensions)); math.Abs(got-want) > tolerance {
					t.Errorf("%d dimensions, %d of them set, angle %.2f: %.3f of the bits differ, want %.3f", dimensions, sparse, angle, got, want)
				}
			}
		}
	}
}

// pair returns two vectors at an angle to each other, within so many components.
func pair(r *rand.Rand, dimensions, sparse int, angle float64) (a, b []float32) {
	at := r.Perm(dimensions)[:sparse]
	u, v := make([]float64, sparse), make([]float64, sparse)
	var uu, uv, vv float64
	for i := range u {
		u[i], v[i] = r.NormFloat64(), r.NormFloat64()
		uu, uv = uu+u[i]*u[i], uv+u[i]*v[i]
	}
	for i := range v {
		v[i] -= uv / uu * u[i]
		vv += v[i] * v[i]
	}
	a, b = make([]float32, dimensions), make([]float32, dimensions)
	for i, k := range at {
		a[k] = float32(u[i] / math.Sqrt(uu))
		b[k] = float32(math.Cos(angle)*u[i]/math.Sqrt(uu) + math.Sin(angle)*v[i]/math.Sqrt(vv))
	}
	return a, b
}

func BenchmarkSketch(b *testing.B) {
	v := make([]float32, 768)
	for i := range v {
		v[i] = float32(i % 7)
	}
	for b.Loop() {
		Sketch(v)
	}
}
