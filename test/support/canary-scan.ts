/**
 * Finds secrets in everything that left a process, however they are written. A secret counts as found if either half of
 * it appears: labels show a few characters at the ends, never a half.
 */

/** One secret to look for. `text` is how it is written, `bytes` what it is where that differs. */
export interface Canary {
  readonly name: string
  readonly text: string
  /** Given, the halves of these bytes are looked for instead of those of the text. */
  readonly bytes?: Buffer
}

interface Hit {
  readonly where: string
  readonly canary: string
  readonly encoding: string
  /** What stands around it, the secret left out. */
  readonly around: string
}

const AROUND_CHARS = 60

/** Writings of some bytes that can stand in the middle of other text; every text is one needle. */
export function encodings(bytes: Buffer): ReadonlyMap<string, Buffer> {
  const text = bytes.toString('latin1')
  const hex = bytes.toString('hex')
  const all = new Map<string, Buffer>([
    ['plain', bytes],
    ['hex', Buffer.from(hex)],
    ['upper-case hex', Buffer.from(hex.toUpperCase())],
    ['upper case', Buffer.from(text.toUpperCase(), 'latin1')],
    ['percent, reserved only', Buffer.from(encodeURIComponent(text))],
    ['percent, all', Buffer.from(hex.replace(/../g, '%$&'))],
    ['JSON', Buffer.from(JSON.stringify(text).slice(1, -1))],
    ['JSON, slashes too', Buffer.from(JSON.stringify(text).slice(1, -1).replaceAll('/', '\\/'))],
    ['JSON, all escaped', Buffer.from(hex.replace(/../g, '\\u00$&'))],
    ['UTF-16LE', Buffer.from(text, 'utf16le')],
  ])
  for (const shift of [0, 1, 2]) {
    const aligned = inBase64(bytes, shift)
    all.set(`base64 at ${shift}`, Buffer.from(aligned))
    all.set(`base64url at ${shift}`, Buffer.from(aligned.replaceAll('+', '-').replaceAll('/', '_')))
  }
  return all
}

/** The base64 characters that these bytes alone decide when `shift` bytes stand before them. */
function inBase64(bytes: Buffer, shift: number): string {
  const text = Buffer.concat([Buffer.alloc(shift), bytes])
    .toString('base64')
    .replace(/=+$/, '')
  const first = shift === 0 ? 0 : shift + 1
  const last = Math.floor(((shift + bytes.length) * 8) / 6)
  return text.slice(first, last)
}

interface Needle {
  readonly canary: string
  readonly encoding: string
  readonly text: string
}

export class Scanner {
  readonly #needles: Needle[] = []
  readonly #seen = new Set<string>()
  readonly hits: Hit[] = []
  bytes = 0

  constructor(canaries: readonly Canary[] = []) {
    for (const canary of canaries) this.add(canary)
  }

  get needles(): number {
    return this.#needles.length
  }

  add({ name, text, bytes }: Canary): void {
    const whole = bytes ?? Buffer.from(text)
    if (whole.length < 16) throw new Error(`${name} is too short to be looked for`)
    const middle = whole.length >> 1
    for (const half of [whole.subarray(0, middle), whole.subarray(middle)]) {
      for (const [encoding, needle] of encodings(half)) {
        const folded = fold(needle)
        if (this.#seen.has(`${name} ${folded}`)) continue
        this.#seen.add(`${name} ${folded}`)
        this.#needles.push({ canary: name, encoding, text: folded })
      }
    }
  }

  /** Looks through the bytes; what is found is kept and returned. Canaries of these names may be there. */
  scan(where: string, content: Buffer | string, allowed: ReadonlySet<string> = NOTHING): readonly Hit[] {
    const bytes = Buffer.from(content as string)
    this.bytes += bytes.length
    const text = fold(bytes)
    const found: Hit[] = []
    for (const needle of this.#needles) {
      if (allowed.has(needle.canary)) continue
      const at = text.indexOf(needle.text)
      if (at === -1) continue
      const { canary, encoding } = needle
      const before = text.slice(Math.max(0, at - AROUND_CHARS), at)
      const after = text.slice(at + needle.text.length, at + needle.text.length + AROUND_CHARS)
      found.push({ where, canary, encoding, around: `${before}<${canary}>${after}` })
    }
    this.hits.push(...found)
    return found
  }

  /** Names of the canaries that are in the bytes; counts as no hit. */
  present(content: Buffer | string): ReadonlySet<string> {
    const text = fold(Buffer.from(content as string))
    return new Set(this.#needles.filter(needle => text.includes(needle.text)).map(({ canary }) => canary))
  }
}

const NOTHING: ReadonlySet<string> = new Set()

/** One character per byte, letters of one case: a secret in another case is still one. */
function fold(bytes: Buffer): string {
  return bytes.toString('latin1').toLowerCase()
}
