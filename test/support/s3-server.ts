/**
 * A small server that implements the S3 protocol as far as files need it: objects by path, put, get and delete, signed
 * requests (AWS4-HMAC-SHA256, checked), and errors in XML. For tests only.
 */
import { createHash, createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { listening } from './listening.ts'

/**
 * A status; no answer at all; a head and no more; half of the body, and no more; other bytes of the same length; or
 * fewer bytes than the head says, and the end of the connection.
 */
export type S3Fault = number | 'silent' | 'head' | 'half' | 'changed' | 'cut'

export interface S3Server {
  readonly url: string
  /** By path, bucket first. */
  readonly objects: Map<string, Buffer>
  /** Method and path of each request. */
  readonly requests: string[]
  /** Head fields of each request. */
  readonly heads: IncomingMessage['headers'][]
  /** What the next answers are, in place of the usual ones. */
  readonly faults: S3Fault[]
  close(): Promise<void>
}

export async function startS3Server(accessKeyId: string, secret: string): Promise<S3Server> {
  const objects = new Map<string, Buffer>()
  /** Hashes that came with the objects. */
  const hashes = new Map<string, string>()
  const requests: string[] = []
  const heads: IncomingMessage['headers'][] = []
  const faults: S3Fault[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => answer(request, Buffer.concat(chunks), response))
  })

  function answer(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
    const { pathname } = new URL(request.url ?? '', 'http://s3')
    requests.push(`${request.method} ${pathname}`)
    heads.push(request.headers)
    const refuse = (status: number, code: string): void => {
      response.writeHead(status, { 'content-type': 'application/xml' })
      response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`)
    }
    const fault = faults.shift()
    const hash = String(request.headers['x-amz-content-sha256'])
    if (fault === 'silent') return
    if (typeof fault === 'number') refuse(fault, 'SlowDown')
    else if (!isSigned(request, accessKeyId, secret)) refuse(403, 'SignatureDoesNotMatch')
    else if (hash !== createHash('sha256').update(body).digest('hex'))
      refuse(400, 'XAmzContentSHA256Mismatch')
    else if (request.method === 'PUT') {
      objects.set(pathname, body)
      hashes.set(pathname, String(request.headers['x-amz-meta-sha256']))
      response.writeHead(200, { etag: '"x"' })
      if (fault === 'head') response.flushHeaders()
      else response.end()
    } else if (request.method === 'DELETE') {
      objects.delete(pathname)
      response.writeHead(204).end()
    } else sendObject(pathname, fault, response, refuse)
  }

  function sendObject(
    pathname: string,
    fault: Exclude<S3Fault, number> | undefined,
    response: ServerResponse,
    refuse: (status: number, code: string) => void,
  ): void {
    const object = objects.get(pathname)
    if (object === undefined) {
      refuse(404, 'NoSuchKey')
      return
    }
    response.writeHead(200, {
      'content-length': object.length,
      'x-amz-meta-sha256': hashes.get(pathname) ?? '',
    })
    const half = object.subarray(0, object.length / 2)
    if (fault === 'head') response.flushHeaders()
    else if (fault === 'half') response.write(half)
    else if (fault === 'cut') response.write(half, () => response.destroy())
    else if (fault === 'changed') response.end(object.map(byte => byte ^ 1))
    else response.end(object)
  }

  const { port } = await listening(server)
  return {
    url: `http://127.0.0.1:${port}`,
    objects,
    requests,
    heads,
    faults,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** Computes the signature anew, from the headers that it names. */
function isSigned({ method, url, headers }: IncomingMessage, accessKeyId: string, secret: string): boolean {
  const match =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? '',
    )
  if (match === null) return false
  const [, id, day = '', region = '', names = '', signature] = match
  const { pathname, searchParams } = new URL(url ?? '', 'http://s3')
  const query = [...searchParams]
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    .toSorted()
    .join('&')
  const canonical = [
    method,
    pathname,
    query,
    ...names.split(';').map(name => `${name}:${String(headers[name]).trim()}`),
    '',
    names,
    headers['x-amz-content-sha256'],
  ].join('\n')
  const hash = createHash('sha256').update(canonical).digest('hex')
  const text = `AWS4-HMAC-SHA256\n${String(headers['x-amz-date'])}\n${day}/${region}/s3/aws4_request\n${hash}`
  const key = [day, region, 's3', 'aws4_request'].reduce<Buffer>(
    (previous, part) => createHmac('sha256', previous).update(part).digest(),
    Buffer.from(`AWS4${secret}`),
  )
  return id === accessKeyId && createHmac('sha256', key).update(text).digest('hex') === signature
}
