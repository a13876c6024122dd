/** The AWS signature, computed step by step from the bytes that a server received, following the public description. */
import { createHash, createHmac } from 'node:crypto'

export interface Received {
  readonly path: string
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

export function expectedSignature({ path, headers, body }: Received, secretAccessKey: string): string {
  const [, scope = '', signed = ''] =
    /Credential=[^/]+\/([^,]+), SignedHeaders=([^,]+), Signature=/.exec(String(headers['authorization'])) ??
    []
  const canonical = [
    'POST',
    path.split('/').map(encodeURIComponent).join('/'),
    '',
    ...signed.split(';').map(name => `${name}:${headers[name]}`),
    '',
    signed,
    sha256(body),
  ].join('\n')
  const toSign = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, sha256(canonical)].join('\n')
  const key = scope
    .split('/')
    .reduce<Buffer | string>(
      (secret, part) => createHmac('sha256', secret).update(part).digest(),
      `AWS4${secretAccessKey}`,
    )
  return createHmac('sha256', key).update(toSign).digest('hex')
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
