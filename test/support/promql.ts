/**
 * Extracts the names in a PromQL expression: metrics with their label matchers, and labels that it groups or joins by.
 * Parses the part of the language that the dashboard and the alert rules use, and refuses the rest.
 */

interface Matcher {
  readonly label: string
  readonly operator: string
  readonly value: string
}

interface Selector {
  readonly metric: string
  readonly matchers: readonly Matcher[]
}

export interface Named {
  readonly selectors: readonly Selector[]
  /** Labels of `by`, `on` and `group_left`. */
  readonly labels: readonly string[]
}

const TOKEN =
  /\s+|\boffset \d+[smhd]\b|(?<string>"(?:[^"\\]|\\.)*")|(?<range>\[[^\]]*\])|(?<number>\d[\d.e+-]*)|(?<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>])/y

const FUNCTIONS = new Set([
  ...[
    'sum',
    'max',
    'min',
    'avg',
    'count',
    'topk',
    'bottomk',
    'rate',
    'increase',
    'changes',
    'histogram_quantile',
  ],
  ...['vector', 'time', 'absent'],
])
const LABEL_LISTS = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right'])
const OPERATORS = new Set(['and', 'or', 'unless', 'bool'])
const RANGE = /^\[(?:\d+[smhd]|\$__rate_interval)\]$/

interface Token {
  readonly kind: 'string' | 'range' | 'number' | 'name' | 'sign'
  readonly text: string
}

function tokens(expr: string): Token[] {
  const found: Token[] = []
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < expr.length) {
    const at = TOKEN.lastIndex
    const match = TOKEN.exec(expr)
    if (match === null) throw new SyntaxError(`not understood: ${expr.slice(at)}`)
    for (const [kind, text] of Object.entries(match.groups ?? {})) {
      if (text !== undefined) found.push({ kind: kind as Token['kind'], text })
    }
  }
  return found
}

/** @throws SyntaxError for what it does not know. */
export function namesIn(expr: string): Named {
  const all = tokens(expr)
  const selectors: Selector[] = []
  const labels: string[] = []
  let index = 0
  const next = (): Token => {
    const token = all[index++]
    if (token === undefined) throw new SyntaxError(`ends too early: ${expr}`)
    return token
  }
  const listed = (close: string, take: (first: Token) => void): void => {
    for (let token = next(); token.text !== close; token = next()) if (token.text !== ',') take(token)
  }
  const balance = { '(': 0 }
  while (index < all.length) {
    const { kind, text } = next()
    if (text === '(') balance['(']++
    if (text === ')') balance['(']--
    if (kind === 'range' && !RANGE.test(text)) throw new SyntaxError(`not a range: ${text}`)
    if (kind !== 'name' || OPERATORS.has(text)) continue
    if (LABEL_LISTS.has(text)) {
      if (next().text !== '(') throw new SyntaxError(`${text} wants a list of labels`)
      listed(')', token => labels.push(token.text))
    } else if (FUNCTIONS.has(text)) continue
    else if (all[index]?.text === '(') throw new SyntaxError(`unknown function ${text}`)
    else {
      const matchers: Matcher[] = []
      if (all[index]?.text === '{') {
        index++
        listed('}', label =>
          matchers.push({ label: label.text, operator: next().text, value: next().text.slice(1, -1) }),
        )
      }
      selectors.push({ metric: text, matchers })
    }
  }
  if (balance['('] !== 0) throw new SyntaxError(`brackets do not match: ${expr}`)
  return { selectors, labels }
}
