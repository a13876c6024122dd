/** IP addresses: IPv4 in dotted form, IPv6 in every form. Not versions, times or MAC addresses. Pure. */
import { type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'
import { before } from './context.ts'

const OCTET = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const VERSION =
  /(?:version|ver|v|release|build|firmware|section|chapter|clause|§|rev|sdk|driver|kapitel|abschnitt|versión|paragraph|figure|table)[.:]?\s?$|[a-z]\/$/

const v4 = shapeOf(
  'ipv4',
  new RegExp(`(?<![\\w.-])(?:${OCTET}\\.){3}${OCTET}(?![\\w-]|\\.\\d)`, 'g'),
  (text, start) => !VERSION.test(before(text, start, 16)),
)

const V6_CANDIDATE = /(?<![\w:.-])(?:[0-9a-f]{1,4})?:[0-9a-f:]{1,38}(?:\.\d{1,3}){0,3}/gi

function isV6(written: string): boolean {
  const halves = written.split('::')
  if (halves.length > 2) return false
  let groups = 0
  let hexDigits = 0
  for (const half of halves) {
    for (const group of half === '' ? [] : half.split(':')) {
      const dotted = group.includes('.')
      if (!(dotted ? /^\d{1,3}(?:\.\d{1,3}){3}$/ : /^[0-9a-f]{1,4}$/i).test(group)) return false
      groups += dotted ? 2 : 1
      hexDigits += group.length
    }
  }
  if (halves.length === 1) return groups === 8
  // `a::b` is how programs write a path, `::1` and `fe80::1` are addresses.
  return groups <= 7 && (written === '::1' || (hexDigits >= 4 && groups >= 2 && /\d/.test(written)))
}

const v6: Shape = {
  find(text, from): Hit | null {
    V6_CANDIDATE.lastIndex = from
    for (;;) {
      const match = V6_CANDIDATE.exec(text)
      if (match === null) return null
      const start = match.index
      // A colon of the sentence may follow, but not half a word.
      const written = /[^:]:$/.test(match[0]) ? match[0].slice(0, -1) : match[0]
      const end = start + written.length
      if (!/[\w.]/.test(text.charAt(end)) || /^\.(?:\s|$)/.test(text.slice(end, end + 2))) {
        if (isV6(written)) return { start, end, name: 'ipv6' }
      }
      V6_CANDIDATE.lastIndex = start + Math.max(1, match[0].indexOf(':'))
    }
  },
}

const GLANCE_V4 = /\d\.\d{1,3}\.\d/
const GLANCE_V6 = /::|[0-9a-f]:[0-9a-f]{1,4}:/i
const ONLY_V4 = [v4]
const ONLY_V6 = [v6]
const BOTH = [v4, v6]

export const detectIpAddress: Detect = text => {
  const dotted = GLANCE_V4.test(text)
  if (text.includes(':') && GLANCE_V6.test(text)) return dotted ? BOTH : ONLY_V6
  return dotted ? ONLY_V4 : noShapes()
}
