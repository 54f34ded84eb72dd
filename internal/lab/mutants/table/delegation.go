package table

// The mutants of tokens for guests, and of the calls that carry them.
var delegationMutants = []Mutant{
	{
		Promise: "a token that none of the secrets has signed is refused",
		File:    "delegation/keys.go",
		Old:     "hmac.Equal(sign(text), mac)",
		New:     "len(sign(text)) == len(mac)",
		Nets:    []string{"delegation TestVerify_Forged", "delegation FuzzVerify"},
	},
	{
		Promise: "all secrets verify, so that one can be replaced",
		File:    "delegation/keys.go",
		Old:     "range k.sign {",
		New:     "range k.sign[:1] {",
		Nets:    []string{"delegation TestKeys_Rotation"},
	},
	{
		Promise: "one token has one text",
		File:    "delegation/keys.go",
		Old:     "base64.RawURLEncoding.Strict()",
		New:     "base64.RawURLEncoding",
		Nets:    []string{"delegation TestVerify_Forged"},
	},
	{
		Promise: "a token for one service is of no use at another",
		File:    "delegation/keys.go",
		Old:     "case g.Audience != audience:",
		New:     "case g.Audience == \"\":",
		Nets:    []string{"delegation TestVerify_Audience"},
	},
	{
		Promise: "a token is of no use when its lease and Skew are over",
		File:    "delegation/keys.go",
		Old:     "!now.Before(g.Expires.Add(Skew))",
		New:     "now.After(g.Expires.Add(Skew))",
		Nets:    []string{"delegation TestVerify_Expiry"},
	},
	{
		Promise: "nothing follows the audience in a payload",
		File:    "delegation/grant.go",
		Old:     "len(b) != audienceAt+int(b[audLenAt])",
		New:     "len(b) < audienceAt+int(b[audLenAt])",
		Nets:    []string{"delegation TestVerify_Payload"},
	},
	{
		Promise: "a redirect takes no token to another host, also by way of a third one",
		File:    "delegation/config.go",
		Old:     "\t\tr = from\n",
		New:     "\t\treturn false\n",
		Nets:    []string{"delegation TestConfig_AudienceOf_Redirects"},
	},
	{
		Promise: "a redirect takes no token from https to http",
		File:    "delegation/config.go",
		Old:     "from.URL.Scheme != r.URL.Scheme || ",
		New:     "",
		Nets:    []string{"delegation TestConfig_AudienceOf_Redirects"},
	},
}
