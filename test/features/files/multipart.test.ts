/** Forms as clients send them, and as they must not be. */
import { closeSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type FormPart, fieldText, partSource, readForm } from '../../../src/features/files/multipart.ts'

const TYPE = 'multipart/form-data; boundary=XX'

function onDisk(t: Test, body: string | Buffer) {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body, 'latin1')
  const path = join(t.testdir({}), 'body')
  writeFileSync(path, bytes)
  const descriptor = openSync(path, 'r')
  t.teardown(() => closeSync(descriptor))
  return { descriptor, bytes: bytes.byteLength }
}

async function partsOf(t: Test, body: string | Buffer, type: string | undefined = TYPE) {
  const disk = onDisk(t, body)
  const parts = await readForm(disk, type)
  const content = async (part: FormPart): Promise<Buffer> => {
    const chunks: Uint8Array[] = []
    for await (const chunk of partSource(disk, part).chunks()) chunks.push(chunk)
    return Buffer.concat(chunks)
  }
  return await Promise.all(
    parts.map(async part => ({ name: part.name, filename: part.filename, content: await content(part) })),
  )
}

const part = (head: string, content: string): string => `--XX\r\n${head}\r\n\r\n${content}\r\n`
const field = (name: string, content: string): string =>
  part(`Content-Disposition: form-data; name="${name}"`, content)
const END = '--XX--\r\n'

t.test('what a client of the platform writes is read', async t => {
  const form = new FormData()
  const bytes = Buffer.from([...Array(3_000_000).keys()].map(at => (at * 7) % 256))
  form.append('purpose', 'user_data')
  form.append('file', new Blob([bytes]), 'a "quoted" näme\n.bin')
  form.append('empty', new Blob([]), 'empty')
  const request = new Request('http://x', { method: 'POST', body: form })
  const type = request.headers.get('content-type') ?? ''
  const parts = await partsOf(t, Buffer.from(await request.arrayBuffer()), type)
  t.same(
    parts.map(({ name, filename }) => [name, filename]),
    [
      ['purpose', null],
      ['file', 'a "quoted" näme%0A.bin'],
      ['empty', 'empty'],
    ],
  )
  t.equal(String(parts[0]?.content), 'user_data')
  t.ok(parts[1]?.content.equals(bytes))
  t.equal(parts[2]?.content.byteLength, 0)
})

t.test('a boundary is found wherever it stands', async t => {
  // Each length moves the end of the part over the border of what is read at once.
  for (let more = 0; more < 80; more++) {
    const content = 'x'.repeat(256 * 1024 - 110 + more)
    const [first, second] = await partsOf(t, field('a', content) + field('b', 'c') + END)
    if (String(first?.content) !== content || String(second?.content) !== 'c') t.fail(`with ${more} more`)
  }
})

t.test('what looks like a boundary and is none belongs to the part', async t => {
  for (const content of ['\r\n--X', '--XX', '\n--XX', '\r\n-XX', '\r\r\n--XY', '\r\n', '\r\n\r\n--x']) {
    const [first] = await partsOf(t, field('a', content) + END)
    t.equal(String(first?.content), content, JSON.stringify(content))
  }
})

t.test('spellings of heads', async t => {
  for (const [head, name, filename] of [
    ['content-disposition:form-data;name=a', 'a', null],
    ['CONTENT-DISPOSITION: FORM-DATA;  NAME="a"; FILENAME="b c"', 'a', 'b c'],
    ['Content-Disposition: form-data; filename="C:\\dir\\b.txt"; name="a"', 'a', 'C:\\dir\\b.txt'],
    ['Content-Disposition: form-data; name="a"; filename="b\\"c"', 'a', 'b"c'],
    ['Content-Disposition: form-data; name="a"; filename=""\r\nContent-Type: text/plain', 'a', ''],
  ] as const)
    t.match(await partsOf(t, part(head, 'x') + END), [{ name, filename }], head)
  t.equal((await partsOf(t, field('a', 'x') + END, 'Multipart/Form-Data;boundary="XX"')).length, 1)
  t.equal((await partsOf(t, `${field('a', 'x')}--XX--`)).length, 1, 'the last line need not end')
})

t.test('what is no such form is refused', async t => {
  const disposition = 'Content-Disposition: form-data'
  const bodies: Readonly<Record<string, string | Buffer>> = {
    empty: '',
    'the end alone is missing': field('a', 'x'),
    'a boundary alone': '--XX',
    'a preamble': `hello\r\n${field('a', 'x')}${END}`,
    'an epilogue': `${field('a', 'x')}${END}more`,
    'an empty line before': `\r\n${field('a', 'x')}${END}`,
    'another boundary': field('a', 'x').replaceAll('XX', 'YY'),
    'a boundary within a line': `${field('a', 'x\r\n--XXY')}${END}`,
    'blanks after a boundary': `--XX \r\n${disposition}; name="a"\r\n\r\nx\r\n${END}`,
    'bare line feeds': field('a', 'x').replaceAll('\r\n', '\n') + END,
    'no head': `--XX\r\n\r\nx\r\n${END}`,
    'no disposition': part('Content-Type: text/plain', 'x') + END,
    'no name': part(disposition, 'x') + END,
    'another disposition': part('Content-Disposition: attachment; name="a"', 'x') + END,
    'a name twice': part(`${disposition}; name="a"; name="b"`, 'x') + END,
    'a header twice': part(`${disposition}; name="a"\r\n${disposition}; name="b"`, 'x') + END,
    'a folded header': part(`${disposition};\r\n name="a"`, 'x') + END,
    'an open quote': part(`${disposition}; name="a`, 'x') + END,
    'a name behind an open quote': part(`${disposition}; name="a\\"`, 'x') + END,
    'an extended name': part(`${disposition}; name="a"; filename*=UTF-8''b`, 'x') + END,
    'a NUL in a head': part(`${disposition}; name="a\0b"`, 'x') + END,
    'a head that is too long': part(`${disposition}; name="${'a'.repeat(5_000)}"`, 'x') + END,
    'a head that never ends': `--XX\r\n${'a: b\r\n'.repeat(2_000)}`,
    'bytes of no encoding in a head': Buffer.from(part(`${disposition}; name="\xff"`, 'x') + END, 'latin1'),
    'an encoded part': part(`${disposition}; name="a"\r\nContent-Transfer-Encoding: base64`, 'eA==') + END,
    'too many parts': field('a', 'x').repeat(17) + END,
    'a part that is cut': `${field('a', 'x')}--XX\r\n${disposition}; name="b"\r\n\r\nunfinished`,
  }
  for (const [name, body] of Object.entries(bodies))
    await t.rejects(partsOf(t, body), { code: 'invalid_request', message: /^The multipart body / }, name)
  t.equal((await partsOf(t, field('a', 'x').repeat(16) + END)).length, 16)
  const types = ['multipart/form-data', 'multipart/mixed; boundary=XX', 'application/json', '', undefined]
  for (const type of [
    ...types,
    `${TYPE}; boundary=YY`,
    'multipart/form-data; boundary=',
    `multipart/form-data; boundary=${'x'.repeat(71)}`,
    'multipart/form-data; boundary="a\r\nb"',
  ])
    await t.rejects(
      readForm(onDisk(t, field('a', 'x') + END), type),
      { code: 'unsupported_media_type' },
      String(type),
    )
})

t.test('every cut of a form is refused, and no byte of it repeated', async t => {
  const whole =
    field('purpose', 'canary') +
    part('Content-Disposition: form-data; name="file"; filename="canary"', 'canary') +
    '--XX--'
  for (let length = 0; length < whole.length; length++) {
    const error: unknown = await partsOf(t, whole.slice(0, length)).then(
      () => null,
      (thrown: unknown) => thrown,
    )
    if (!(error instanceof Error) || error.message.includes('canary')) t.fail(`cut at ${length}`)
  }
})

t.test('a field is a short text', async t => {
  const disk = onDisk(
    t,
    Buffer.concat([
      Buffer.from(field('a', 'x'.repeat(9)) + part('Content-Disposition: form-data; name="b"', '')).subarray(
        0,
        -2,
      ),
      Buffer.from([0xff]),
      Buffer.from(`\r\n${END}`),
    ]),
  )
  const [first, second] = await readForm(disk, TYPE)
  if (first === undefined || second === undefined) throw new Error('two parts were expected')
  t.equal(await fieldText(disk, first, 9), 'x'.repeat(9))
  await t.rejects(fieldText(disk, first, 8), { code: 'invalid_request' })
  await t.rejects(fieldText(disk, second, 9), { code: 'invalid_request' })
})
