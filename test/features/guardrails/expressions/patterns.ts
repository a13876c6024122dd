/** User-defined patterns: common ones for V8, and random ones with random texts. */
import fc from 'fast-check'

export const NATIVE = [
  '[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}',
  '(?i)\\b[a-z0-9._%+-]+@[a-z0-9.-]+\\.[a-z]{2,}\\b',
  '-----BEGIN [A-Z ]*PRIVATE KEY-----',
  'password\\s*[:=]\\s*\\S+',
  '(?i)(?:password|passwd|pwd)\\s*[:=]\\s*\\S+',
  '\\b[A-Z]{2}\\d{2}[ ]?(?:[A-Z0-9]{4}[ ]?){2,7}[A-Z0-9]{1,4}\\b',
  '\\b\\d{3}-\\d{2}-\\d{4}\\b',
  '\\bAKIA[0-9A-Z]{16}\\b',
  '(?i)bearer\\s+[a-z0-9._~+/-]+=*',
  '\\b(?:\\d[ -]?){13,16}\\b',
  '\\$\\d+(?:,\\d{3})*',
  '\\b[a-z0-9-]{1,40}\\.corp\\.example\\b',
  '\\b\\d{1,3}(?:\\.\\d{1,3}){3}\\b',
  '(?i)salary|bonus',
  'https?://intranet\\.[a-z.]+',
  'x*y',
]
const atom = fc.constantFrom(
  ...[
    'a',
    'b',
    'x',
    'k',
    's',
    'A',
    '@',
    '-',
    ' ',
    '\\n',
    '\\.',
    '.',
    '\\d',
    '\\w',
    '\\s',
    '\\S',
    '\\W',
    '\\D',
  ],
  ...['[ab]', '[^a]', '[a-z]', '[A-Z ]', '[\\w.-]', '[^\\s@]', '[^\\n-]', '[0-9]', '[]a]', '[k-s]', '[^ks]'],
  ...['ü', '[à-ÿ]', '😀', '[😀-😂a]', '\\x{212a}', '\\x41', '\\t', 'ab', 'ba', '-x-'],
)
const quantifier = fc.constantFrom(
  ...['', '', '', '*', '+', '?', '*?', '+?', '??', '{2}', '{1,3}', '{0,2}', '{2,}', '{1,3}?', '{2,4}'],
)
const assertion = fc.constantFrom('', '', '', '', '\\b', '^', '$', '\\A', '\\z')
const piece = fc.tuple(assertion, atom, quantifier).map(([before, one, times]) => {
  // A quantifier of `ab` is one of its last character, as everywhere.
  return `${before}${one}${times}`
})
const sequence = fc.array(piece, { minLength: 1, maxLength: 4 }).map(pieces => pieces.join(''))
const group = fc
  .tuple(
    fc.constantFrom('', '', '(?i)', '(?m)', '(?s)', '(?im)'),
    sequence,
    fc.array(sequence, { maxLength: 2 }),
    fc.constantFrom('', '', '?', '{2}', '{1,2}', '{1,2}?', '*'),
    fc.constantFrom('(', '(?:', '(?i:', '(?-i:', '(?s:', '(?m:'),
    fc.constantFrom('', 'a', '@', '\\b', '$', 'b+', '\\S+', '\\w*'),
  )
  .map(([flags, head, choices, times, open, tail]) => {
    const middle = choices.length === 0 ? '' : `${open}${choices.join('|')})${times}`
    return `${flags}${head}${middle}${tail}`
  })
export const anyPattern = fc.oneof(
  group,
  group,
  fc.tuple(group, sequence).map(both => both.join('|')),
)
const character = fc.constantFrom(
  ...[
    'a',
    'a',
    'b',
    'x',
    'y',
    'k',
    'K',
    's',
    'A',
    'B',
    '@',
    '.',
    '-',
    '-',
    ' ',
    ' ',
    '\n',
    '\r',
    '\t',
    '\v',
    '1',
    '7',
  ],
  ...['_', 'ü', 'Ü', '\u212a', '\u017f', '\u00a0', '\u2028', '😀', '😁', '\ud83d', '\ude00'],
)
export const anyText = fc.oneof(
  fc.array(character, { maxLength: 24 }).map(all => all.join('')),
  fc
    .array(fc.constantFrom('a', 'b', 'A', '-', ' ', '.', '@', '1'), { maxLength: 40 })
    .map(all => all.join('')),
)
