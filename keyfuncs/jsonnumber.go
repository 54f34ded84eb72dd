package keyfuncs

import (
	"strconv"
	"strings"
)

const (
	// maxDigits bounds the digits of a number that is written out.
	maxDigits = 100
	// maxFractionDigits bounds significant digits. Two numbers of so many are never one float64.
	maxFractionDigits = 15
)

// canonicalNumber returns a JSON number as a plain decimal: no exponent, no leading or trailing
// zeros, no minus before zero. It returns false if that takes too many digits.
func canonicalNumber(number string) (string, bool) {
	digits, sign := number, ""
	if digits[0] == '-' {
		digits, sign = digits[1:], "-"
	}
	exponent := "0"
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		digits, exponent = digits[:i], digits[i+1:]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", true
	}
	scale, err := strconv.Atoi(exponent)
	if err != nil || scale < -len(number)-maxDigits || scale > len(number)+maxDigits {
		return "", false // no zeros in the number make up for it
	}
	scale -= len(fraction) // the number is digits * 10^scale
	trimmed := strings.TrimRight(digits, "0")
	scale += len(digits) - len(trimmed)
	digits = trimmed

	point := len(digits) + scale // where it goes, counted from the first digit
	switch {
	case max(point, len(digits), -scale) > maxDigits, scale < 0 && len(digits) > maxFractionDigits:
		return "", false
	case scale >= 0:
		return sign + digits + strings.Repeat("0", scale), true
	case point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits, true
	}
	return sign + digits[:point] + "." + digits[point:], true
}
