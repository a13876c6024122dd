/**
 * AWS signatures (version 4), made by AWS's own library, which is loaded for the first signature. Node hashes the body,
 * several times faster than JavaScript would. Only the host, the headers of the signature itself and, for S3, the given
 * headers are signed, so a proxy may add others. Serve and batch threads.
 */
import { createHash, createHmac } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { OutgoingKey, SignableRequest } from '../../protocol/provider.ts'

/** The access key of a user. */
interface AwsAccess {
  readonly accessKeyId: string
  readonly secretAccessKey: string
}

/** The region and service that a signature is valid for. */
interface AwsScope {
  readonly region: string
  readonly service: string
}

type Sign = NonNullable<OutgoingKey['sign']>

/** Creates a function that signs requests with an access key. */
export function awsSigner(clock: Pick<Clock, 'nowMs'>, access: AwsAccess, scope: AwsScope): Sign {
  return ({ method, url, body }: SignableRequest) =>
    signRequest(
      { method, url, headers: {}, body },
      { access, scope, escapesPath: true, nowMs: clock.nowMs() },
    )
}

/** Creates a function that signs S3 requests. The body is covered by its SHA-256 (hex). */
export function s3Signer(clock: Pick<Clock, 'nowMs'>, access: AwsAccess, region: string) {
  const scope = { region, service: 's3' }
  return (
    { method, url, headers }: Pick<SignableRequest, 'method' | 'url' | 'headers'>,
    sha256: string,
  ): Promise<Readonly<Record<string, string>>> =>
    signRequest(
      { method, url, headers: { ...headers, 'x-amz-content-sha256': sha256 }, body: '' },
      { access, scope, escapesPath: false, nowMs: clock.nowMs() },
    )
}

interface SignTerms {
  readonly access: AwsAccess
  readonly scope: AwsScope
  /** False only for S3, which uses the path as written. */
  readonly escapesPath: boolean
  readonly nowMs: number
}

/** All headers of the request including those of the signature, but without the host. */
async function signRequest(
  { method, url, headers, body }: SignableRequest,
  { access, scope, escapesPath, nowMs }: SignTerms,
): Promise<Readonly<Record<string, string>>> {
  const { SignatureV4 } = await import('@smithy/signature-v4')
  const signer = new SignatureV4({
    credentials: access,
    ...scope,
    sha256: Sha256,
    uriEscapePath: escapesPath,
    applyChecksum: escapesPath,
  })
  const request = {
    method,
    protocol: url.protocol,
    hostname: url.hostname,
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    headers: { ...headers, host: url.host },
    body,
  }
  const { host: _host, ...signedHeaders } = (await signer.sign(request, { signingDate: new Date(nowMs) }))
    .headers
  return signedHeaders
}

/** The signatures in the headers that a signer returned. They are removed from replies that repeat them. */
export function signatureIn(headers: Readonly<Record<string, string>>): readonly string[] {
  const signature = /Signature=([0-9a-f]{64})/.exec(headers['authorization'] ?? '')?.[1]
  return signature === undefined ? [] : [signature]
}

type Bytes = string | ArrayBuffer | ArrayBufferView

/** Node's hash in the form that the library expects. */
class Sha256 {
  readonly #hash: ReturnType<typeof createHash> | ReturnType<typeof createHmac>

  constructor(secret?: Bytes) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', bytesOf(secret))
  }

  update(data: Bytes): void {
    this.#hash.update(bytesOf(data))
  }

  digest(): Promise<Uint8Array> {
    return Promise.resolve(this.#hash.digest())
  }

  /** The library creates a new instance for each hash. */
  reset(): void {
    throw new Error('a hash is used once')
  }
}

function bytesOf(data: Bytes): string | Uint8Array {
  if (typeof data === 'string') return data
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data)
}
