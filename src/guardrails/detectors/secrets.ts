/**
 * Secrets: the forms in which providers issue keys, private keys, tokens, passwords in addresses, and values that are
 * assigned to something named as a secret and look random. Pure.
 */
import { CONTEXT_CHARS, type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'
import { pem } from './pem.ts'
import { SECRET_GLANCE, SECRET_SHAPES } from './secret-shapes.ts'

const ISSUED = new RegExp(
  `(?<![A-Za-z0-9_-])(?:${SECRET_SHAPES.map(({ source }, index) => `(?<s${index}>${source})`).join('|')})`,
  'g',
)
const NAMES = SECRET_SHAPES.map(({ name }) => name)

const issued: Shape = {
  find(text, from): Hit | null {
    ISSUED.lastIndex = from
    for (;;) {
      const match = ISSUED.exec(text)
      if (match === null) return null
      const which = match.slice(1).findIndex(group => group !== undefined)
      if (looksIssued(match[0])) {
        return { start: match.index, end: match.index + match[0].length, name: NAMES[which] ?? 'secret' }
      }
      ISSUED.lastIndex = match.index + 1
    }
  },
}

/** False for placeholders, such as `sk-xxxxxxxxxxxxxxxxxxxx` and `sk-ant-your-key-goes-here`. */
function looksIssued(value: string): boolean {
  return !/(?:([\w*.-])\1{9}|your|example_?key|placeholder|goes-?here)/i.test(value)
}

const ASSIGNED =
  /(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,24}[_-]){0,3}(?:api[_-]?key|apikey|secret(?:[_-]?(?:access)?[_-]?key)?|access[_-]?(?:key|token)|auth[_-]?token|client[_-]?secret|token|password|passwd|pwd|passphrase|private[_-]?key|passwort|contraseña|mot de passe|密码)["'`]?(?:\s{0,3}(?::=|=>|[:=])\s{0,3}|\s(?:is|ist|es|est)(?: ?:)?\s)["'`]?(?<value>[^\s"'`,;<>(){}[\]]{6,200})/gi

const assigned: Shape = {
  find(text, from): Hit | null {
    // The name is before the hit, so it may be before `from`.
    ASSIGNED.lastIndex = Math.max(0, from - CONTEXT_CHARS)
    for (;;) {
      const match = ASSIGNED.exec(text)
      if (match === null) return null
      const value = match.groups?.['value'] ?? ''
      const end = match.index + match[0].length
      const start = end - value.length
      if (start >= from && isRandom(value))
        return { start, end: end - trailing(value), name: 'assigned_secret' }
      ASSIGNED.lastIndex = match.index + 1
    }
  },
}

const trailing = (value: string): number => /[.!?:]+$/.exec(value)?.[0].length ?? 0

/** True if a value looks random: mixed kinds of characters, few repeated; not a word, path, variable or placeholder. */
function isRandom(value: string): boolean {
  const stripped = value.slice(0, value.length - trailing(value))
  if (stripped.length < 6) return false
  if (/^(?:\$|process\.|os\.|env\.|https?:|\/|\.\/|\*+$|x+$)/i.test(stripped)) return false
  if (/(?:your|example|placeholder|changeme|redacted|xxxx|\*\*\*|getenv|\.\.\.)/i.test(stripped)) return false
  const kinds =
    Number(/[a-z]/.test(stripped)) +
    Number(/[A-Z]/.test(stripped)) +
    Number(/\d/.test(stripped)) +
    Number(/[^A-Za-z0-9]/.test(stripped))
  if (kinds < 2 || !/\d|[^A-Za-z0-9._/-]/.test(stripped)) return false
  const bits = entropy(stripped)
  return stripped.length >= 16 ? bits >= 3 : kinds >= 3 || bits >= 2.5
}

/** Shannon entropy, in bits per character. */
function entropy(value: string): number {
  const counts = new Map<string, number>()
  for (const character of value) counts.set(character, (counts.get(character) ?? 0) + 1)
  let bits = 0
  for (const count of counts.values()) bits -= (count / value.length) * Math.log2(count / value.length)
  return bits
}

const inUrl = shapeOf(
  'url_password',
  /(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{1,20}:\/\/[^\s:@/"'<>]{0,64}:[^\s@/"'<>]{3,128}@(?=[\w[])/gi,
  (text, start, end) => !/:(?:\$|<|\{|\*+@|x+@|password@|pass@|port)/i.test(text.slice(start + 6, end)),
)
const bearer = shapeOf(
  'bearer_token',
  /(?<![A-Za-z])Bearer [A-Za-z0-9_.~+/-]{20,500}={0,2}/g,
  (text, start, end) => isRandom(text.slice(start + 7, end)) && looksIssued(text.slice(start, end)),
)

const NAMED_GLANCE =
  /(?:key|secret|token|passw(?:or[dt]|d)|passphrase|pwd|contraseña|mot de passe|密码)["'`]?(?:\s{0,3}[:=]|\s(?:is|ist|es|est)\s)/i

export const detectSecrets: Detect = text => {
  const shapes: Shape[] = []
  if (SECRET_GLANCE.test(text)) shapes.push(issued)
  if (NAMED_GLANCE.test(text)) shapes.push(assigned)
  if (text.includes('-----BEGIN ')) shapes.push(pem)
  if (text.includes('://') && text.includes('@')) shapes.push(inUrl)
  if (text.includes('Bearer ')) shapes.push(bearer)
  return shapes.length === 0 ? noShapes() : shapes
}
