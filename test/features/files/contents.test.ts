/** What every place for bytes must do, and what is particular to folders and buckets. */
import { execFileSync } from 'node:child_process'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { chmodSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { fileId } from '../../../src/base/ids.ts'
import { bytesSource, type ContentSource, type FileContents } from '../../../src/features/files/contents.ts'
import { createFolderContents } from '../../../src/features/files/folder.ts'
import { createS3Contents, type S3Deps } from '../../../src/features/files/s3.ts'
import { startProxy, without } from '../../support/forward-proxy.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

// A small server that implements the S3 protocol as far as files need it: objects by path, put, get and
// delete, signed requests (AWS4-HMAC-SHA256, checked), and errors in XML. For tests only.

/**
 * A status; no answer at all; a head and no more; half of the body, and no more; other bytes of the same length; or
 * fewer bytes than the head says, and the end of the connection.
 */
type S3Fault = number | 'silent' | 'head' | 'half' | 'changed' | 'cut'

interface S3Server {
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

async function startS3Server(accessKeyId: string, secret: string): Promise<S3Server> {
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

const NO_IDS = [
  '',
  '.',
  '..',
  '../x',
  '/etc/passwd',
  'gw_file_',
  `${fileId()}/..`,
  `${fileId()}\0`,
  `../${fileId()}`,
  'arriving-1',
]

async function bytesOf(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = []
  for await (const chunk of chunks) all.push(chunk)
  return Buffer.concat(all)
}

function brokenSource(bytes: number): ContentSource {
  return {
    bytes,
    async *chunks() {
      yield Buffer.alloc(bytes - 1)
      throw new RangeError('the body broke')
    },
  }
}

async function contentsContract(t: Test, contents: FileContents): Promise<void> {
  for (const size of [0, 1, 256 * 1024, 3_000_001]) {
    const id = fileId()
    const bytes = randomBytes(size)
    await contents.put(id, bytesSource(bytes))
    t.ok((await bytesOf(contents.read(id))).equals(bytes), `${size} bytes come back`)
    await contents.put(id, bytesSource(Buffer.from('other')))
    t.equal(String(await bytesOf(contents.read(id))), 'other')
    await contents.remove(id)
    await contents.remove(id)
    await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' })
  }
  const id = fileId()
  await t.rejects(contents.put(id, brokenSource(100)))
  await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' }, 'all bytes or none')
  for (const name of NO_IDS) {
    await t.rejects(
      async () => contents.put(name, bytesSource(Buffer.from('x'))),
      TypeError,
      JSON.stringify(name),
    )
    await t.rejects(async () => bytesOf(contents.read(name)), TypeError)
    await t.rejects(async () => contents.remove(name), TypeError)
  }
}

t.test('a folder keeps bytes, for its owner alone', async t => {
  const folder = join(t.testdir({}), 'a', 'files')
  const contents = createFolderContents(folder)
  await contentsContract(t, contents)
  t.same(readdirSync(folder), [], 'nothing is left behind')
  const id = fileId()
  await contents.put(id, bytesSource(Buffer.from('x')))
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(statSync(join(folder, id)).mode & 0o777, 0o600)
})

t.test('a link, a pipe or a folder in the place of a file is not read, nor written through', async t => {
  const root = t.testdir({ secret: 'of the host', files: {} })
  const folder = join(root, 'files')
  const contents = createFolderContents(folder)
  const [link, pipe, inner] = [fileId(), fileId(), fileId()]
  symlinkSync(join(root, 'secret'), join(folder, link))
  execFileSync('mkfifo', [join(folder, pipe)])
  mkdirSync(join(folder, inner))
  for (const id of [link, pipe, inner]) await t.rejects(bytesOf(contents.read(id)))
  await contents.put(link, bytesSource(Buffer.from('new')))
  t.equal(String(await bytesOf(contents.read(link))), 'new')
  t.equal(execFileSync('cat', [join(root, 'secret')]).toString(), 'of the host')
  symlinkSync(join(root, 'secret'), join(folder, 'gw_file_000000000000000000000000'))
  await contents.remove('gw_file_000000000000000000000000')
  t.equal(execFileSync('cat', [join(root, 'secret')]).toString(), 'of the host')
})

t.test('a folder that cannot be used is told as such', async t => {
  const folder = join(t.testdir({}), 'files')
  writeFileSync(folder, 'a file')
  const contents = createFolderContents(folder)
  await t.rejects(contents.put(fileId(), bytesSource(Buffer.from('x'))), { code: 'service_unavailable' })
  rmSync(folder)
  chmodSync(join(folder, '..'), 0o700)
})

const DEPS: S3Deps = { clock: systemClock, proxyOf: () => null }
const SETTINGS = {
  bucket: 'bucket',
  prefix: 'some/prefix',
  region: 'eu-test-1',
  accessKeyId: 'AKID',
  secretAccessKey: 'its secret',
}

t.test('a bucket keeps bytes, below its prefix', async t => {
  const server = await startS3Server('AKID', 'its secret')
  t.teardown(() => server.close())
  const contents = createS3Contents({ ...SETTINGS, endpoint: server.url }, DEPS)
  await contentsContract(t, contents)
  t.same([...server.objects], [])
  const id = fileId()
  await contents.put(id, bytesSource(Buffer.from('x')))
  t.same([...server.objects.keys()], [`/bucket/some/prefix/${id}`])
  const plain = createS3Contents({ ...SETTINGS, prefix: '', endpoint: server.url }, DEPS)
  await plain.put(id, bytesSource(Buffer.from('x')))
  t.ok(server.objects.has(`/bucket/${id}`))
})

t.test(
  'a bucket that is busy is asked once more, and one that refuses is told without its words',
  async t => {
    const server = await startS3Server('AKID', 'its secret')
    t.teardown(() => server.close())
    const contents = createS3Contents({ ...SETTINGS, endpoint: server.url }, DEPS)
    const id = fileId()
    server.faults.push(503)
    await contents.put(id, bytesSource(Buffer.from('whole')))
    server.faults.push(500)
    t.equal(String(await bytesOf(contents.read(id))), 'whole')
    server.faults.push(503, 503)
    await t.rejects(contents.put(fileId(), bytesSource(Buffer.from('x'))), { code: 'service_unavailable' })
    const before = server.requests.length
    const stranger = createS3Contents({ ...SETTINGS, secretAccessKey: 'wrong', endpoint: server.url }, DEPS)
    await t.rejects(bytesOf(stranger.read(id)), {
      code: 'service_unavailable',
      message: 'Service temporarily unavailable',
    })
    t.equal(server.requests.length, before + 1, 'a refusal is final')
  },
)

async function startBucket(t: Test, deps: Partial<S3Deps> = {}): Promise<[S3Server, FileContents]> {
  const server = await startS3Server('AKID', 'its secret')
  t.teardown(() => server.close())
  return [server, createS3Contents({ ...SETTINGS, endpoint: server.url }, { ...DEPS, ...deps })]
}

t.test('odd names of buckets and prefixes are signed as they are sent', async t => {
  const server = await startS3Server('AKID', 'its secret')
  t.teardown(() => server.close())
  const prefix = "über uns/a+b/(c)!*'~_"
  const contents = createS3Contents({ ...SETTINGS, prefix, endpoint: server.url }, DEPS)
  const id = fileId()
  await contents.put(id, bytesSource(Buffer.from('x')))
  t.equal(String(await bytesOf(contents.read(id))), 'x')
  t.same([...server.objects.keys()], [`/bucket/%C3%BCber%20uns/a%2Bb/%28c%29%21%2A%27~_/${id}`])
})

t.test('the hash of the bytes is signed, kept, and holds for what comes back', async t => {
  const [server, contents] = await startBucket(t)
  const id = fileId()
  const content = Buffer.from('hello')
  await contents.put(id, bytesSource(content))
  const sha256 = createHash('sha256').update(content).digest('hex')
  t.match(server.heads[0], { 'x-amz-content-sha256': sha256, 'x-amz-meta-sha256': sha256 })
  t.match(
    server.heads[0]?.authorization,
    /SignedHeaders=[^,]*host;x-amz-content-sha256;x-amz-date;x-amz-meta/,
  )
  server.faults.push('changed')
  await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' })
  t.equal(String(await bytesOf(contents.read(id))), 'hello')
})

t.test('bytes that change between the hash and the sending are refused, and kept nowhere', async t => {
  const [server, contents] = await startBucket(t)
  let reads = 0
  const source: ContentSource = {
    bytes: 2,
    async *chunks() {
      yield Buffer.from(`v${++reads}`)
    },
  }
  await t.rejects(contents.put(fileId(), source), {
    code: 'service_unavailable',
    cause: { code: 'S3_400_XAMZCONTENTSHA256MISMATCH' },
  })
  t.same([...server.objects], [])
})

t.test('a source that breaks while it is sent is told as it is, and not tried again', async t => {
  const [server, contents] = await startBucket(t)
  let reads = 0
  const source: ContentSource = {
    bytes: 100_000,
    async *chunks() {
      yield Buffer.alloc(50_000)
      if (++reads > 1) throw new RangeError('the body broke')
      yield Buffer.alloc(50_000)
    },
  }
  await t.rejects(contents.put(fileId(), source), new RangeError('the body broke'))
  t.equal(reads, 2)
  t.same([...server.objects], [])
})

type Work = (contents: FileContents, id: string) => Promise<unknown>
const put: Work = (contents, id) => contents.put(id, bytesSource(Buffer.from('x')))
const SILENT: Readonly<Record<string, readonly [S3Fault, Work]>> = {
  'while it takes an object': ['silent', put],
  'behind the head of its answer': ['head', put],
  'while it removes one': ['silent', (contents, id) => contents.remove(id)],
  'before it gives one': ['silent', (contents, id) => bytesOf(contents.read(id))],
}

for (const [when, [fault, work]] of Object.entries(SILENT)) {
  t.test(`a bucket that falls silent ${when} is asked once more, and then given up`, async t => {
    const clock = new TestClock()
    const [server, contents] = await startBucket(t, { clock })
    const id = fileId()
    await contents.put(id, bytesSource(Buffer.from('there')))
    const before = server.requests.length
    server.faults.push(fault, fault)
    const waiting = t.rejects(work(contents, id), { code: 'service_unavailable' })
    for (let tries = 1; tries <= 2; tries++) {
      while (server.requests.length < before + tries || clock.armed === 0) await new Promise(setImmediate)
      clock.advance(30_000)
    }
    await waiting
    t.equal(server.requests.length, before + 2)
    t.equal(clock.armed, 0)
  })
}

t.test('an object that stops half way fails, by silence or by the end of the connection', async t => {
  const clock = new TestClock()
  const [server, contents] = await startBucket(t, { clock })
  const id = fileId()
  const content = randomBytes(1_000)
  await contents.put(id, bytesSource(content))
  server.faults.push('cut')
  await t.rejects(bytesOf(contents.read(id)), { code: 'service_unavailable' })
  server.faults.push('half')
  const reading = contents.read(id)[Symbol.asyncIterator]()
  t.equal((await reading.next()).value?.length, 500)
  t.equal(clock.armed, 0, 'a reader may take its time')
  const waiting = t.rejects(reading.next(), { code: 'service_unavailable' })
  while (clock.armed === 0) await new Promise(setImmediate)
  clock.advance(30_000)
  await waiting
})

t.test('a reader that stops in the middle leaves nothing behind', async t => {
  const clock = new TestClock()
  const [, contents] = await startBucket(t, { clock })
  const id = fileId()
  await contents.put(id, bytesSource(randomBytes(3_000_000)))
  for await (const chunk of contents.read(id)) {
    t.ok(chunk.length > 0)
    break
  }
  t.equal(clock.armed, 0)
})

t.test('a bucket is reached by the proxy of the environment', { skip: without('squid') }, async t => {
  const proxy = await startProxy(t, 'squid', true)
  const asked: string[] = []
  const [server, contents] = await startBucket(t, {
    proxyOf: url => {
      asked.push(url.host)
      return proxy.urlWithUser
    },
  })
  await contentsContract(t, contents)
  t.same(asked, [new URL(server.url).host])
  t.notMatch(JSON.stringify(server.heads), 'proxy-authorization')
  const [, closed] = await startBucket(t, { proxyOf: () => proxy.url })
  await t.rejects(closed.put(fileId(), bytesSource(Buffer.from('x'))), { code: 'service_unavailable' })
})

t.test('a key that reads slowly has sixteen connections to the bucket, and others go on', async t => {
  const clock = new TestClock()
  const [server, contents] = await startBucket(t, { clock })
  const id = fileId()
  await contents.put(id, bytesSource(randomBytes(100_000)), 'slow')
  const readings = Array.from({ length: 16 }, () => contents.read(id, 'slow')[Symbol.asyncIterator]())
  for (const reading of readings) t.equal((await reading.next()).done, false)
  const asked = server.requests.length
  const waiting = contents.read(id, 'slow')[Symbol.asyncIterator]()
  const served = waiting.next()
  const late = t.rejects(contents.remove(id, 'slow'), { code: 'rate_limit_exceeded' })
  const other = fileId()
  await contents.put(other, bytesSource(Buffer.from('other')), 'other')
  t.equal(String(await bytesOf(contents.read(other, 'other'))), 'other')
  await contents.remove(other, 'other')
  t.equal(server.requests.length, asked + 3, 'nothing more of the slow one was asked for')
  await readings[0]?.return?.()
  t.equal((await served).done, false, 'its next request comes when one has ended')
  clock.advance(30_000)
  await late
  await Promise.all([...readings, waiting].map(reading => reading.return?.()))
  t.equal(clock.armed, 0)
})
