/** Client addresses in the form that fronts report: bytes, and IPv6 text without `::`. Pure. */
import { isIPv4 } from 'node:net'

/** The 4 or 16 bytes of an address in its usual text form. */
export function addressBytes(text: string): Uint8Array {
  if (isIPv4(text)) return Uint8Array.from(text.split('.'), Number)
  const [plain = ''] = text.split('%')
  const embedded = /(?:\d+\.){3}\d+$/.exec(plain)?.[0]
  const groups = embedded === undefined ? plain : plain.slice(0, -embedded.length) + groupsOf(embedded)
  const [head = '', tail] = groups.split('::')
  const first = numbersOf(head)
  const last = tail === undefined ? [] : numbersOf(tail)
  const groupsOfAddress = [...first, ...new Array<number>(8 - first.length - last.length).fill(0), ...last]
  return Uint8Array.from(groupsOfAddress.flatMap(group => [group >> 8, group & 0xff]))
}

/** An address of 16 bytes has eight groups of four digits. */
export function addressText(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.')
  const digits = Buffer.from(bytes).toString('hex')
  return digits.match(/.{4}/g)?.join(':') ?? ''
}

function numbersOf(groups: string): readonly number[] {
  return groups === '' ? [] : groups.split(':').map(group => Number.parseInt(group, 16))
}

/** The last four bytes of a mapped address as two groups. */
function groupsOf(embedded: string): string {
  const [a = 0, b = 0, c = 0, d = 0] = embedded.split('.').map(Number)
  return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
}
