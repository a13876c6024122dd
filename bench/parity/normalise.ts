/**
 * Makes two replies to the same request comparable: replaces the gateway's own identifiers, times and durations with
 * placeholders. Identifiers are numbered in order of appearance, so that a wrong pairing still shows. What the provider
 * sent stays unchanged. Pure.
 */

const IDENTIFIER = /(?<![\w-])(?:(gen)-\d+-[0-9A-Za-z]{20}|(msg|rs|fc|ctc|st|call)_[0-9A-Za-z]{24})(?![\w-])/
/** Records of the store, such as guardrails. */
const UUID = /(?<![\w-])([0-9a-f]{8})-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![\w-])/
const TIME = /"(created_at|completed_at|created)":(\d+(?:\.\d+)?)/
const TIMINGS = /"timings_ms":\{[^{}]*\}/
/** Header with the time of each stage. */
const SERVER_TIMING = /^server-timing: .*$/
const REQUEST_ID = /^x-request-id: .*$/
const OURS = new RegExp(
  [IDENTIFIER, UUID, TIME, TIMINGS, SERVER_TIMING, REQUEST_ID]
    .map(pattern => `(?:${pattern.source})`)
    .join('|'),
  'gm',
)

/**
 * Blank lines more than the one that ends a frame: each write ends with one, and how many writes there are follows
 * from how the provider's bytes happened to arrive.
 */
const BLANK_LINES = /\n{3,}/g
const EVENT_STREAM = /^content-type: text\/event-stream/m

/**
 * @param text a reply as `replyText` gives it
 * @param foreign what the provider sent
 */
export function normalise(text: string, foreign: string): string {
  const numbers = new Map<string, string>()
  const even = EVENT_STREAM.test(text) ? text.replace(BLANK_LINES, '\n\n') : text
  return even.replace(
    OURS,
    (whole: string, gen?: string, prefix?: string, uuid?: string, field?: string, value?: string) => {
      if (whole.startsWith('x-request-id')) return 'x-request-id: <id>'
      if (whole.startsWith('server-timing')) return whole.replace(/dur=[\d.]+/g, 'dur=<ms>')
      if (whole.startsWith('"timings_ms"')) return whole.replace(/:-?\d+(?:\.\d+)?/g, ':<ms>')
      if (field !== undefined) {
        const isForeign = foreign.includes(`"${field}":${value}`) || foreign.includes(`"${field}": ${value}`)
        return isForeign ? whole : `"${field}":<time>`
      }
      if (foreign.includes(whole)) return whole
      const known = numbers.get(whole)
      if (known !== undefined) return known
      const name = `<${uuid === undefined ? (gen ?? prefix) : 'uuid'} ${numbers.size + 1}>`
      numbers.set(whole, name)
      return name
    },
  )
}
