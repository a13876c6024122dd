/** Shell commands that repeat the requests of a check. `$KEY` stands for the key. Pure. */
import { type Header, isSecret } from './secrets.ts'

/** A curl command for a request. */
export function asCurl(url: string, method: string, headers: readonly Header[], body: string | null): string {
  const words = [
    'curl -sS -N -i',
    ...(method === 'HEAD'
      ? ['-I']
      : method === 'GET' || (method === 'POST' && body !== null)
        ? []
        : [`-X ${method}`]),
    quote(url),
    ...headers.map(header => `-H ${headerWord(header)}`),
    ...(body === null ? [] : [`-d ${quote(body.length <= 2000 ? body : `${body.slice(0, 2000)}...`)}`]),
  ]
  return words.join(' ')
}

/** A printf and netcat command for bytes that curl would not send. */
export function asBytes(url: URL, bytes: string, key: string): string {
  const parts = key === '' ? [bytes] : bytes.split(key)
  const shownParts = parts.map(part =>
    escapeForPrintf(part.length <= 1200 ? part : `${part.slice(0, 600)}...${part.slice(-300)}`),
  )
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const receiver =
    url.protocol === 'https:' ? `openssl s_client -quiet -connect ${host}:${port}` : `nc -w 5 ${host} ${port}`
  return `printf ${quote(shownParts.join('%s'))}${' "$KEY"'.repeat(parts.length - 1)} | ${receiver}`
}

function headerWord(header: Header): string {
  const [name, value] = header
  if (!isSecret(header)) return quote(`${name}: ${value}`)
  const scheme = /^(Bearer) /i.exec(value)?.[1]
  return `"${name}: ${scheme === undefined ? '' : `${scheme} `}$${name === 'authorization' ? 'KEY' : name.replace(/\W/g, '_').toUpperCase()}"`
}

function escapeForPrintf(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('%', '%%').replaceAll('\r', '\\r').replaceAll('\n', '\\n')
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}
