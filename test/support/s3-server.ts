/**
 * A small server that speaks the wire form of S3 as far as files need it: objects by path, put, get and delete, signed
 * requests (AWS4-HMAC-SHA256, checked), and errors in XML. For tests only.
 */
import { createHash, createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface S3Server {
  readonly url: string
  /** By path, bucket first. */
  readonly objects: Map<string, Buffer>
  /** Method and path of each request. */
  readonly requests: string[]
  /** Statuses of the next answers, in place of the usual ones. */
  readonly faults: number[]
  close(): Promise<void>
}

export async function startS3Server(accessKeyId: string, secret: string): Promise<S3Server> {
  const objects = new Map<string, Buffer>()
  const requests: string[] = []
  const faults: number[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => answer(request, Buffer.concat(chunks), response))
  })

  function answer(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
    const { pathname } = new URL(request.url ?? '', 'http://s3')
    requests.push(`${request.method} ${pathname}`)
    const refuse = (status: number, code: string): void => {
      response.writeHead(status, { 'content-type': 'application/xml' })
      response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`)
    }
    const fault = faults.shift()
    if (fault !== undefined) refuse(fault, 'SlowDown')
    else if (!isSigned(request, accessKeyId, secret)) refuse(403, 'SignatureDoesNotMatch')
    else if (request.method === 'PUT') {
      objects.set(pathname, body)
      response.writeHead(200, { etag: '"x"' }).end()
    } else if (request.method === 'DELETE') {
      objects.delete(pathname)
      response.writeHead(204).end()
    } else {
      const object = objects.get(pathname)
      if (object === undefined) refuse(404, 'NoSuchKey')
      else response.writeHead(200, { 'content-length': object.length }).end(object)
    }
  }

  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    objects,
    requests,
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
