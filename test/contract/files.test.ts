/** /files over real HTTP: the official client, hostile forms and names, workspaces apart, bounds. */
import { randomBytes } from 'node:crypto'
import { readdirSync, rmSync, statSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { dirname, join } from 'node:path'
import OpenAI, { toFile } from 'openai'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { addKey, addOrganization, caller } from '../support/management.ts'
import { writePdf } from '../support/pdf.ts'
import { uploadTo } from '../support/world.ts'

const folder = join(t.testdir({}), 'files')
const NOT_FOUND = { status: 404 } as Error & { status: number }
const BOUNDS = { maxFileBytes: 2_000_000, maxFiles: 40, maxBytes: 20_000_000 }
const gateway = await startGateway({ storedFiles: { url: `file:${folder}`, ...BOUNDS } })
t.teardown(() => gateway.close())
const client = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
const ask = caller(gateway.url, gateway.apiKey)

const keyIn = (organizationId: string, workspaceId: string) =>
  addKey(gateway.storageUrl, { organizationId, workspaceId })

async function emptied(): Promise<void> {
  const ids: string[] = []
  for await (const { id } of client.files.list()) ids.push(id)
  for (const id of ids) await client.files.delete(id)
}

const uploaded = (name: string, bytes: Uint8Array | string, purpose?: string, apiKey?: string) =>
  uploadTo(gateway, name, bytes, purpose, apiKey)

t.test('a file without a purpose is data of a user, as clients of Anthropic upload it', async t => {
  const form = new FormData()
  form.append('file', new Blob(['The shed is ochre.']), 'notes.txt')
  const headers = { authorization: `Bearer ${gateway.apiKey}` }
  const reply = await fetch(`${gateway.url}/files`, { method: 'POST', headers, body: form })
  t.equal(reply.status, 200)
  const file = (await reply.json()) as { id: string }
  t.match(file, { purpose: 'user_data', filename: 'notes.txt' })
  await client.files.delete(file.id)
})

t.test('the official client uploads, lists, retrieves, reads and deletes', async t => {
  const bytes = randomBytes(1_000_000)
  const made = await client.files.create({ file: await toFile(bytes, 'données.bin'), purpose: 'vision' })
  t.match(made, {
    id: /^gw_file_[0-9A-Za-z]{24}$/,
    object: 'file',
    bytes: 1_000_000,
    created_at: Number,
    filename: 'données.bin',
    purpose: 'vision',
    status: 'uploaded',
    status_details: null,
  })
  t.same(await client.files.retrieve(made.id), made)
  const content = await client.files.content(made.id)
  t.equal(content.headers.get('content-type'), 'application/octet-stream')
  t.equal(content.headers.get('x-content-type-options'), 'nosniff')
  t.equal(
    content.headers.get('content-disposition'),
    `attachment; filename="donn_es.bin"; filename*=UTF-8''donn%C3%A9es.bin`,
  )
  t.ok(Buffer.from(await content.arrayBuffer()).equals(bytes))
  t.same(readdirSync(folder), [made.id], 'its bytes have the name of the id')
  t.equal(statSync(join(folder, made.id)).mode & 0o777, 0o600)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.same(await client.files.delete(made.id), { id: made.id, object: 'file', deleted: true })
  t.same(readdirSync(folder), [])
  await t.rejects(client.files.retrieve(made.id).asResponse(), NOT_FOUND)
  await t.rejects(client.files.content(made.id).asResponse(), NOT_FOUND)
  await t.rejects(client.files.delete(made.id).asResponse(), NOT_FOUND)
})

t.test('lists go from page to page, by purpose and in both orders', async t => {
  const ids: string[] = []
  for (const at of Array(25).keys()) {
    const { document } = await uploaded(`${at}.txt`, `text ${at}`, at % 5 === 0 ? 'assistants' : 'user_data')
    ids.push(String(document['id']))
  }
  const listed = async (options: OpenAI.FileListParams): Promise<string[]> => {
    const all: string[] = []
    for await (const { id } of client.files.list(options)) all.push(id)
    return all
  }
  t.same(await listed({}), ids.toReversed())
  t.same(await listed({ limit: 7, order: 'asc' }), ids)
  t.same(await listed({ limit: 2, purpose: 'assistants' }), ids.filter((_, at) => at % 5 === 0).toReversed())
  for (const [query, path] of [
    ['limit=0', 'limit'],
    ['limit=101', 'limit'],
    ['order=up', 'order'],
    ['purpose=canary', 'purpose'],
    ['after=canary', 'after'],
    ['after=x&after=y', 'after'],
  ] as const) {
    const { status, message } = await ask('GET', `/files?${query}`)
    t.equal(status, 400, query)
    t.match(message, new RegExp(`^${path}: `))
    t.notMatch(message, 'canary')
  }
  const { document } = await ask('GET', '/files?limit=1')
  t.match(document, { object: 'list', first_id: ids[24], last_id: ids[24], has_more: true })
  await emptied()
})

t.test('the text of a file is read when it arrives', async t => {
  const cases: readonly (readonly [string, Uint8Array | string, string, string])[] = [
    ['a.txt', 'Grüße', 'user_data', 'processed'],
    ['a.pdf', writePdf({ pages: ['The text of a page'] }), 'assistants', 'processed'],
    ['b.pdf', '%PDF-1.7 broken', 'assistants', 'error'],
    ['a.bin', Buffer.from([0, 1, 2, 255]), 'user_data', 'uploaded'],
    ['latin1.txt', Buffer.from('Gr\xfc\xdfe', 'latin1'), 'user_data', 'uploaded'],
    ['empty', '', 'user_data', 'uploaded'],
    ['a.jsonl', '{}', 'batch', 'uploaded'],
  ]
  for (const [name, bytes, purpose, status] of cases) {
    const { document } = await uploaded(name, bytes, purpose)
    t.match(document, { status }, name)
    const content = await client.files.content(String(document['id']))
    t.ok(Buffer.from(await content.arrayBuffer()).equals(Buffer.from(bytes)), `${name} comes back`)
  }
  await emptied()
})

t.test('the texts of many files that one key uploads at once are all read', async t => {
  const made = await Promise.all(Array.from({ length: 30 }, (_, at) => uploaded(`${at}.txt`, `text ${at}`)))
  t.same(new Set(made.map(({ document }) => document['status'])), new Set(['processed']))
  await emptied()
})

t.test('other workspaces and organizations know nothing of a file', async t => {
  const { document } = await uploaded('secret.txt', 'a canary of the first workspace')
  const id = String(document['id'])
  const second = await addOrganization(gateway.storageUrl, 'org_files')
  const strangers = [
    await keyIn('org_default', 'ws_other'),
    second.apiKey,
    await keyIn('org_files', 'ws_default'),
  ]
  for (const key of strangers) {
    const other = caller(gateway.url, key)
    for (const [method, path] of [
      ['GET', `/files/${id}`],
      ['GET', `/files/${id}/content`],
      ['DELETE', `/files/${id}`],
    ] as const) {
      const nobody = await other(method, path.replace(id, 'gw_file_000000000000000000000000'))
      const answer = await other(method, path)
      t.equal(answer.status, 404)
      t.equal(answer.text, nobody.text, 'as if there were none')
    }
    t.same((await other('GET', '/files')).document['data'], [])
    t.equal((await other('GET', `/files?after=${id}`)).status, 400)
  }
  for (const path of ['/files', `/files/${id}`, `/files/${id}/content`])
    t.equal((await caller(gateway.url, gateway.managementKey)('GET', path)).status, 403)
  t.equal((await ask('GET', `/files/${id}`)).status, 200)
  await emptied()
})

t.test('no name leaves the folder', async t => {
  const outside = () => readdirSync(dirname(folder)).toSorted()
  const before = outside()
  const names = [
    ...['../../escape', '..\\..\\escape', '/tmp/escape', 'a/../../escape', '....//escape', '%2e%2e%2fescape'],
    ...['\u202eescape', '\uff0e\uff0e\uff0fescape', 'C:\\escape', '~/escape', 'escape.', '-rf', '.escape'],
  ]
  for (const name of names) {
    const { status, document } = await uploaded(name, 'x')
    t.equal(status, 200, JSON.stringify(name))
    t.notMatch(document['filename'], /[/\\\0\u202e]/)
    const content = await client.files.content(String(document['id']))
    t.equal(await content.text(), 'x')
    t.match(
      content.headers.get('content-disposition'),
      /^attachment; filename="[\w.() -]*"; filename\*=UTF-8''[\w.%~!-]*$/,
    )
  }
  t.equal((await uploaded('escape\0.txt', 'x')).status, 400, 'a NUL is in no head')
  for (const name of ['..', '.', '../', '', '\u200b', 'x'.repeat(256)]) {
    const { status, document } = await uploaded(name, 'x')
    t.equal(status, 400, JSON.stringify(name.slice(0, 20)))
    t.match(document, { error: { message: /^file: / } })
  }
  t.same(outside(), before)
  for (const name of readdirSync(folder)) t.match(name, /^gw_file_[0-9A-Za-z]{24}$/)
  t.equal(readdirSync(folder).length, names.length)
  for (const id of ['..', '%2e%2e', '..%2f..%2fetc%2fpasswd', `${'a'.repeat(5_000)}`, 'gw_file_%00'])
    for (const end of ['', '/content']) {
      const { status } = await ask('GET', `/files/${id}${end}`)
      t.ok([400, 404].includes(status), `${id.slice(0, 20)}${end}: ${status}`)
    }
  await emptied()
})

t.test(
  'forms that are not whole, and fields that are wrong, are refused and leave nothing behind',
  async t => {
    const post = async (body: FormData | string, type?: string) => {
      const headers = {
        authorization: `Bearer ${gateway.apiKey}`,
        ...(type === undefined ? {} : { 'content-type': type }),
      }
      const reply = await fetch(`${gateway.url}/files`, { method: 'POST', headers, body })
      return [reply.status, ((await reply.json()) as { error: { message: string } }).error.message] as const
    }
    const form = (fields: readonly (readonly [string, string | Blob, string?])[]): FormData => {
      const made = new FormData()
      for (const [name, value, filename] of fields)
        if (value instanceof Blob) made.append(name, value, filename)
        else made.append(name, value)
      return made
    }
    const blob = new Blob(['canary'])
    for (const [body, message] of [
      [form([['purpose', 'vision']]), /^file: /],
      [
        form([
          ['file', 'canary'],
          ['purpose', 'vision'],
        ]),
        /^file: /,
      ],
      [
        form([
          ['file', blob, 'a'],
          ['purpose', blob, 'p'],
        ]),
        /^purpose: /,
      ],
      [
        form([
          ['file', blob, 'a'],
          ['purpose', 'canary'],
        ]),
        /^purpose: /,
      ],
      [
        form([
          ['file', blob, 'a'],
          ['purpose', 'v'.repeat(100)],
        ]),
        /too long/,
      ],
      [
        form([
          ['file', blob, 'a'],
          ['file', blob, 'b'],
          ['purpose', 'vision'],
        ]),
        /^file: must not be given twice/,
      ],
      [
        form([
          ['file', blob, 'a'],
          ['purpose', 'vision'],
          ['expires_after[anchor]', 'created_at'],
        ]),
        /^expires_after: /,
      ],
    ] as const) {
      const [status, told] = await post(body)
      t.equal(status, 400, told)
      t.match(told, message)
      t.notMatch(told, 'canary')
    }
    t.equal((await post('{}', 'application/json'))[0], 415)
    t.equal((await post('x', 'multipart/form-data'))[0], 415)
    t.equal((await post('--XX\r\ncanary', 'multipart/form-data; boundary=XX'))[0], 400)
    t.equal((await uploaded('a', Buffer.alloc(BOUNDS.maxFileBytes + 1))).status, 413)
    t.equal((await uploaded('a', Buffer.alloc(BOUNDS.maxFileBytes + 100_000))).status, 413)
    t.same((await ask('GET', '/files')).document['data'], [])
    t.same(readdirSync(folder), [])
  },
)

t.test('a body that is cut leaves nothing behind', async t => {
  const sending = httpRequest(`${gateway.url}/files`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.apiKey}`,
      'content-type': 'multipart/form-data; boundary=XX',
      'content-length': 1_000_000,
    },
  })
  const closed = new Promise<void>(resolve => sending.once('close', () => resolve()))
  sending.on('error', () => undefined)
  sending.write('--XX\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n')
  sending.write(Buffer.alloc(300_000), () => sending.destroy())
  await closed
  t.same((await ask('GET', '/files')).document['data'], [])
  t.same(readdirSync(folder), [])
})

t.test('a workspace has so many files and bytes, and others have theirs', async t => {
  const large = () => uploaded('large', Buffer.alloc(1_900_000), 'vision')
  const uploads: Awaited<ReturnType<typeof large>>[] = []
  // No more at once than one key may have on the disk.
  // An answer may come before its upload has left the disk; the next one is 429 then.
  while (uploads.length < 14) {
    const pair = await Promise.all([large(), large()])
    uploads.push(...pair.filter(({ status }) => status !== 429))
  }
  const statuses = uploads.map(({ status }) => status)
  t.equal(statuses.filter(status => status === 200).length, 10, '20 million bytes')
  t.equal(statuses.filter(status => status === 409).length, statuses.length - 10)
  const refused = uploads.find(({ status }) => status === 409)
  t.match(refused?.document, { error: { message: /limit of 20000000 bytes/ } })
  t.equal(readdirSync(folder).length, 10)
  const other = await keyIn('org_default', 'ws_roomy')
  const theirs = await uploaded('a', Buffer.alloc(1_900_000), 'vision', other)
  t.equal(theirs.status, 200)
  await caller(gateway.url, other)('DELETE', `/files/${String(theirs.document['id'])}`)
  await emptied()
  for (const _ of Array(40).keys()) await uploaded('a', 'x', 'vision')
  t.match(await uploaded('a', 'x'), { status: 409, document: { error: { message: /limit of 40 files/ } } })
  await emptied()
  t.same(readdirSync(folder), [])
})

t.test('bytes that are gone are told, and their file can be deleted', async t => {
  const { document } = await uploaded('a', 'x')
  const id = String(document['id'])
  rmSync(join(folder, id))
  t.equal((await ask('GET', `/files/${id}/content`)).status, 503)
  t.equal((await ask('DELETE', `/files/${id}`)).status, 200)
})

t.test('no log line has a name or a content', async t => {
  await uploaded('canary-name.txt', 'canary-content')
  t.notMatch(JSON.stringify(gateway.lines), /canary-/)
  await emptied()
})
