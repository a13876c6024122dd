/**
 * Secrets: provider key formats, private keys in PEM form, tokens, passwords in URLs, and random-looking values
 * assigned to something with a secret-like name. Pure. Private keys are found across windows, because a fixed line
 * marks their end.
 */
import { CONTEXT_CHARS, type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'

interface SecretShape {
  readonly name: string
  /** Source of its expression. SECRET_GLANCE has to match whatever this matches. */
  readonly source: string
}

const SECRET_SHAPES: readonly SecretShape[] = [
  { name: 'anthropic_key', source: 'sk-ant-[\\w-]{20,200}' },
  { name: 'openrouter_key', source: 'sk-or-v1-[0-9a-f]{64}' },
  { name: 'gateway_key', source: 'sk-gw-(?:v1|mgmt)-[0-9a-f]{64}' },
  { name: 'openai_key', source: 'sk-(?:proj|svcacct|admin|None)-[\\w-]{20,200}' },
  { name: 'openai_key', source: 'sk-[A-Za-z0-9]{20,64}' },
  { name: 'stripe_key', source: '[srp]k_(?:live|test)_[A-Za-z0-9]{16,128}' },
  { name: 'stripe_webhook_secret', source: 'whsec_[A-Za-z0-9+/]{24,64}' },
  { name: 'aws_access_key', source: 'A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])' },
  { name: 'google_api_key', source: 'AIza[\\w-]{35}' },
  { name: 'google_oauth_token', source: 'ya29\\.[\\w-]{20,256}' },
  { name: 'google_client_secret', source: 'GOCSPX-[\\w-]{28}' },
  { name: 'github_token', source: 'gh[pousr]_[A-Za-z0-9]{36,255}' },
  { name: 'github_token', source: 'github_pat_[A-Za-z0-9_]{22,255}' },
  { name: 'gitlab_token', source: 'gl(?:pat|ptt|dt|rt|cbt)-[\\w-]{20,64}' },
  { name: 'slack_token', source: 'xox[abeoprs]-[A-Za-z0-9-]{10,250}' },
  { name: 'slack_app_token', source: 'xapp-\\d-[A-Za-z0-9-]{20,200}' },
  { name: 'npm_token', source: 'npm_[A-Za-z0-9]{36}' },
  { name: 'pypi_token', source: 'pypi-[\\w-]{50,255}' },
  { name: 'hugging_face_token', source: 'hf_[A-Za-z0-9]{30,64}' },
  { name: 'replicate_token', source: 'r8_[A-Za-z0-9]{37}' },
  { name: 'groq_key', source: 'gsk_[A-Za-z0-9]{40,64}' },
  { name: 'xai_key', source: 'xai-[A-Za-z0-9]{60,128}' },
  { name: 'perplexity_key', source: 'pplx-[A-Za-z0-9]{32,64}' },
  { name: 'fireworks_key', source: 'fw_[A-Za-z0-9]{20,40}(?![A-Za-z0-9])' },
  { name: 'sendgrid_key', source: 'SG\\.[\\w-]{16,32}\\.[\\w-]{32,64}' },
  { name: 'twilio_key', source: 'SK[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'mailgun_key', source: 'key-[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'digitalocean_token', source: 'do[oprt]_v1_[0-9a-f]{64}' },
  { name: 'databricks_token', source: 'dapi[0-9a-f]{32}(?![A-Za-z0-9])' },
  { name: 'shopify_token', source: 'shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}' },
  { name: 'linear_key', source: 'lin_api_[A-Za-z0-9]{40}' },
  { name: 'notion_token', source: 'ntn_[A-Za-z0-9]{40,60}' },
  { name: 'vault_token', source: 'hvs\\.[\\w-]{24,200}' },
  { name: 'age_secret_key', source: 'AGE-SECRET-KEY-1[A-Z0-9]{58}' },
  { name: 'telegram_bot_token', source: '\\d{8,10}:AA[\\w-]{33}(?![\\w-])' },
  { name: 'json_web_token', source: 'eyJ[\\w-]{10,1000}\\.eyJ[\\w-]{10,2000}(?:\\.[\\w-]{10,700})?' },
]

/** A quick check: matches if the text may contain any of the shapes above. */
const SECRET_GLANCE =
  /sk-|[srp]k_[lt]|whsec_|A(?:KIA|SIA|BIA|CCA)[A-Z2-7]|AIza|ya29\.|GOCSPX|gh[pousr]_|github_pat|gl(?:pat|ptt|dt|rt|cbt)-|xox[abeoprs]-|xapp-|npm_|pypi-|hf_|r8_|gsk_|xai-|pplx-|fw_|SG\.|SK[0-9a-f]{8}|key-[0-9a-f]{8}|do[oprt]_v1_|dapi[0-9a-f]{8}|shp(?:at|ca|pa|ss)_|lin_api_|ntn_|hvs\.|AGE-S|:AA|eyJ/

// Private keys

const KEY_BEGIN = /-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----/g
/** A blank between the words of a key's body, raw or escaped as in programs. */
const KEY_BLANK = /(?:\s|\\[nr])/y
const KEY_HEADER = /[A-Za-z][A-Za-z-]{2,30}: ?[^\r\n\\]{1,120}/y
const KEY_END = /-----END (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----/y
/** Shorter words belong to the sentence after the key, unless they end the body. */
const WORD_MIN_CHARS = 16

const isBodyCharacter = (code: number): boolean =>
  (code >= 97 && code <= 122) ||
  (code >= 65 && code <= 90) ||
  (code >= 47 && code <= 57) ||
  code === 43 ||
  code === 61

function matchLength(expression: RegExp, text: string, position: number): number {
  expression.lastIndex = position
  return expression.exec(text)?.[0].length ?? 0
}

/** The end of the key body that begins at `from`; `open` if the body may continue after the text. */
function keyBody(text: string, from: number): { end: number; open: boolean } {
  let end = from
  let position = from
  for (;;) {
    let blank = matchLength(KEY_BLANK, text, position)
    while (blank > 0) {
      position += blank
      blank = matchLength(KEY_BLANK, text, position)
    }
    if (position >= text.length) return { end: text.length, open: true }
    const endLength = matchLength(KEY_END, text, position)
    if (endLength > 0) return { end: position + endLength, open: false }
    if (text.length - position < 60 && text.startsWith('-', position)) return { end: text.length, open: true }
    let wordEnd = position
    while (wordEnd < text.length && isBodyCharacter(text.charCodeAt(wordEnd))) wordEnd++
    if (wordEnd === text.length) return { end: wordEnd, open: true }
    const wordLength = wordEnd - position
    const endsBody =
      text[wordEnd - 1] === '=' || /^(?:\s|\\[nr]){0,4}-----END/.test(text.slice(wordEnd, wordEnd + 20))
    if (wordLength >= WORD_MIN_CHARS || (wordLength > 0 && (endsBody || position === from))) {
      end = wordEnd
      position = wordEnd
      continue
    }
    const headerLength = matchLength(KEY_HEADER, text, position)
    if (headerLength === 0) return { end, open: false }
    end = position + headerLength
    position = end
  }
}

const pemKey: Shape = {
  find(text, from): Hit | null {
    KEY_BEGIN.lastIndex = from
    for (;;) {
      const match = KEY_BEGIN.exec(text)
      if (match === null) return null
      const start = match.index + match[0].length
      const { end } = keyBody(text, start)
      // The words alone, in a sentence about such files, are no key.
      if (/[A-Za-z0-9+/]{16}/.test(text.slice(start, start + 400)) && end > start) {
        return { start: match.index, end, name: 'private_key' }
      }
    }
  },
  goesOn: keyBody,
}

// Issued keys, and values that look like secrets

const ISSUED_KEY = new RegExp(
  `(?<![A-Za-z0-9_-])(?:${SECRET_SHAPES.map(({ source }, index) => `(?<s${index}>${source})`).join('|')})`,
  'g',
)
const SECRET_NAMES = SECRET_SHAPES.map(({ name }) => name)

const issuedKey: Shape = {
  find(text, from): Hit | null {
    ISSUED_KEY.lastIndex = from
    for (;;) {
      const match = ISSUED_KEY.exec(text)
      if (match === null) return null
      const shapeIndex = match.slice(1).findIndex(group => group !== undefined)
      if (looksIssued(match[0])) {
        return {
          start: match.index,
          end: match.index + match[0].length,
          name: SECRET_NAMES[shapeIndex] ?? 'secret',
        }
      }
      ISSUED_KEY.lastIndex = match.index + 1
    }
  },
}

/** False for placeholders, such as `sk-xxxxxxxxxxxxxxxxxxxx` and `sk-ant-your-key-goes-here`. */
function looksIssued(value: string): boolean {
  return !/(?:([\w*.-])\1{9}|your|example_?key|placeholder|goes-?here)/i.test(value)
}

const ASSIGNED_VALUE =
  /(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,24}[_-]){0,3}(?:api[_-]?key|apikey|secret(?:[_-]?(?:access)?[_-]?key)?|access[_-]?(?:key|token)|auth[_-]?token|client[_-]?secret|token|password|passwd|pwd|passphrase|private[_-]?key|passwort|contraseña|mot de passe|密码)["'`]?(?:\s{0,3}(?::=|=>|[:=])\s{0,3}|\s(?:is|ist|es|est)(?: ?:)?\s)["'`]?(?<value>[^\s"'`,;<>(){}[\]]{6,200})/gi

const assignedSecret: Shape = {
  find(text, from): Hit | null {
    // The name is before the hit, so it may be before `from`.
    ASSIGNED_VALUE.lastIndex = Math.max(0, from - CONTEXT_CHARS)
    for (;;) {
      const match = ASSIGNED_VALUE.exec(text)
      if (match === null) return null
      const value = match.groups?.['value'] ?? ''
      const end = match.index + match[0].length
      const start = end - value.length
      if (start >= from && isRandom(value))
        return { start, end: end - trailingLength(value), name: 'assigned_secret' }
      ASSIGNED_VALUE.lastIndex = match.index + 1
    }
  },
}

const trailingLength = (value: string): number => /[.!?:]+$/.exec(value)?.[0].length ?? 0

/** True if a value looks random: mixed kinds of characters, few repeated; not a word, path, variable or placeholder. */
function isRandom(value: string): boolean {
  const stripped = value.slice(0, value.length - trailingLength(value))
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

const urlPassword = shapeOf(
  'url_password',
  /(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{1,20}:\/\/[^\s:@/"'<>]{0,64}:[^\s@/"'<>]{3,128}@(?=[\w[])/gi,
  (text, start, end) => !/:(?:\$|<|\{|\*+@|x+@|password@|pass@|port)/i.test(text.slice(start + 6, end)),
)
const bearerToken = shapeOf(
  'bearer_token',
  /(?<![A-Za-z])Bearer [A-Za-z0-9_.~+/-]{20,500}={0,2}/g,
  (text, start, end) => isRandom(text.slice(start + 7, end)) && looksIssued(text.slice(start, end)),
)

const NAMED_GLANCE =
  /(?:key|secret|token|passw(?:or[dt]|d)|passphrase|pwd|contraseña|mot de passe|密码)["'`]?(?:\s{0,3}[:=]|\s(?:is|ist|es|est)\s)/i

export const detectSecrets: Detect = text => {
  const shapes: Shape[] = []
  if (SECRET_GLANCE.test(text)) shapes.push(issuedKey)
  if (NAMED_GLANCE.test(text)) shapes.push(assignedSecret)
  if (text.includes('-----BEGIN ')) shapes.push(pemKey)
  if (text.includes('://') && text.includes('@')) shapes.push(urlPassword)
  if (text.includes('Bearer ')) shapes.push(bearerToken)
  return shapes.length === 0 ? noShapes() : shapes
}
