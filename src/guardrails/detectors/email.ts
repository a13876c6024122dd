/** Email addresses, from the `@` outwards, and spelled-out ones such as `ann [at] example [dot] org`. Pure. */
import { type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'

const LOCAL_MAX_CHARS = 64
/** ASCII by a table, other letters by their range: digits, letters and what may stand between them. */
const isLocal = (code: number): boolean =>
  (code >= 97 && code <= 122) ||
  (code >= 64 && code <= 90 && code !== 64) ||
  (code >= 48 && code <= 57) ||
  code === 46 ||
  code === 95 ||
  code === 45 ||
  code === 43 ||
  code === 37 ||
  code === 39 ||
  (code >= 0xc0 && code <= 0x24f)
const DOMAIN =
  /(?:[a-z0-9\u00c0-\u024f](?:[a-z0-9\u00c0-\u024f-]{0,61}[a-z0-9\u00c0-\u024f])?\.){1,6}(?:[a-z]{2,24}|xn--[a-z0-9-]{2,30})(?![a-z0-9_-])/giy
/** `logo@2x.png` is a file. */
const FILE = /\.(?:png|jpe?g|gif|svg|webp|css|html?|jsx?|json|tsx?|pdf|txt|mjs|cjs|zip|gz)$/i
/** `//user:password@host` is for another detector. */
const IN_URL = /:\/\/[^\s/@]{0,100}$/

const address: Shape = {
  find(text, from): Hit | null {
    for (let at = text.indexOf('@', from); at >= 0; at = text.indexOf('@', at + 1)) {
      let start = at
      const least = Math.max(0, at - LOCAL_MAX_CHARS)
      while (start > least && isLocal(text.charCodeAt(start - 1))) start--
      // A dot, quote or hyphen before belongs to the sentence.
      while (start < at && /[.'%-]/.test(text.charAt(start))) start++
      if (start === at || start < from) continue
      DOMAIN.lastIndex = at + 1
      const domain = DOMAIN.exec(text)?.[0]
      if (domain === undefined || FILE.test(domain)) continue
      const end = at + 1 + domain.length
      // `git@host:owner/repository` names a repository.
      if (text.slice(start, at) === 'git' && text[end] === ':') continue
      if (IN_URL.test(text.slice(Math.max(0, start - 104), start))) continue
      return { start, end, name: 'email' }
    }
    return null
  },
}

const spelled = shapeOf(
  'email_spelled',
  /(?<![\w.+-])[\w.+-]{1,64}[ ]?[[({][ ]?(?:at|@)[ ]?[\])}][ ]?[a-z0-9-]{1,63}(?:(?:\.|[ ]?[[({][ ]?(?:dot|\.)[ ]?[\])}][ ]?)[a-z0-9-]{1,63}){1,4}/gi,
)

const ADDRESS = [address]
const SPELLED = [address, spelled]
const SPELLED_AT = /[[({] ?(?:at|@) ?[\])}]/i

export const detectEmail: Detect = text => {
  const bracketed = (text.includes('[') || text.includes('(') || text.includes('{')) && SPELLED_AT.test(text)
  if (bracketed) return SPELLED
  return text.includes('@') ? ADDRESS : noShapes()
}
