import t from 'tap'
import {
  bytesOf,
  documentsOf,
  inputParts,
  knownContents,
  pdfDataUrl,
  sourceOf,
  withDocuments,
} from '../../../src/features/plugins/file-parts.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'

const file_data = `data:application/pdf;base64,${Buffer.from('%PDF-1').toString('base64')}`
const pdf = { type: 'input_file' as const, filename: 'a.pdf', file_data }
const asking = (input: unknown): ResponsesRequest => ({
  model: 'a/b',
  input: input as ResponsesRequest['input'],
})

t.test('a document is told by its data URL, its address or its id', async t => {
  const file = { type: 'input_file' }
  const cases: readonly (readonly [unknown, string | null])[] = [
    [pdf, 'data file_data'],
    [{ ...pdf, file_data: file_data.replace('pdf;', 'PDF;name=a;') }, 'data file_data'],
    [{ ...file, file_data: 'https://a/b.pdf' }, 'link file_data'],
    [{ ...file, file_url: 'https://a/b.pdf' }, 'link file_url'],
    [{ ...file, file_url: 'HTTP://a/b.pdf', file_id: 'f' }, 'link file_url'],
    [{ ...file, file_url: 'file:///etc/passwd' }, 'link file_url'],
    [{ ...file, file_url: file_data }, 'data file_url'],
    [{ ...file, file_data: '', file_url: null, file_id: 'file-1' }, 'id file_id'],
    [{ ...file, file_data, file_url: 'https://a/b.pdf' }, 'data file_data'],
    [null, null],
    [{ ...pdf, type: 'input_text' }, null],
    [{ ...pdf, file_data: 'data:text/plain;base64,aGk=' }, null],
    [{ ...file, file_url: 'data:text/plain;base64,aGk=' }, null],
    [{ ...pdf, file_data: 'JVBERi0x' }, null],
    [file, null],
  ]
  for (const [part, expected] of cases) {
    const source = sourceOf(part)
    t.equal(source === null ? null : `${source.kind} ${source.field}`, expected, JSON.stringify(part))
  }
  t.equal(Buffer.from(bytesOf(file_data)).toString(), '%PDF-1')
  t.equal(bytesOf('data:application/pdf;base64,%%%').length, 0)
  t.equal(pdfDataUrl(bytesOf(file_data)), file_data)
})

t.test(
  'documents are found in messages and in what tools gave back, under the paths of the caller',
  async t => {
    const link = { type: 'input_file', file_url: 'https://a/b.pdf' }
    const input = [
      { role: 'user', content: 'hi' },
      { role: 'user', content: [{ type: 'input_text', text: 'a' }, pdf, link] },
      { type: 'function_call_output', call_id: 'c', output: [pdf] },
    ]
    t.same(
      documentsOf(asking(input)).map(({ path }) => path),
      ['input[1].content[1].file_data', 'input[1].content[2].file_url', 'input[2].output[0].file_data'],
    )
    t.same(documentsOf(asking('hi')), [])
    const text = { type: 'input_text', text: 'File: a.pdf\n\nread' }
    const { input: output } = withDocuments(asking(input), (part, { kind }) =>
      kind === 'data' ? inputParts(part, [{ type: 'text', text: 'read' }], false) : null,
    )
    t.same(output, [
      input[0],
      { role: 'user', content: [{ type: 'input_text', text: 'a' }, text, link] },
      { type: 'function_call_output', call_id: 'c', output: [text] },
    ])
    t.same(withDocuments(asking(input), () => null).input, input)
  },
)

t.test('pictures of a document stand behind its text, for models that see', async t => {
  const url = 'data:image/png;base64,AAAA'
  const content = [
    { type: 'text', text: 'one' },
    { type: 'image_url', image_url: { url } },
    { type: 'text', text: 'two' },
  ]
  const text = { type: 'input_text', text: 'one\n\ntwo' }
  const part = { type: 'input_file' as const }
  t.same(inputParts(part, content, false), [text])
  t.same(inputParts(part, content, true), [text, { type: 'input_image', detail: 'auto', image_url: url }])
})

t.test('what was sent back is known, and is not shown to the model as notes', async t => {
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }
  const text = (of: string) => ({ type: 'text', text: of })
  const elsewhere = { type: 'image_url', image_url: { url: 'http://127.0.0.1/a.png' } }
  const note = {
    type: 'file',
    file: { hash: 'h', content: [text('one'), { type: 'image_url' }, image, elsewhere, text('two')] },
  }
  const link = { type: 'url_citation', url: 'http://a' }
  const request = asking([
    { role: 'assistant', content: [{ type: 'output_text', text: 'x', annotations: [link, note] }] },
  ])
  t.same([...knownContents(request)], [['h', [text('one'), image, text('two')]]])
  t.match(withDocuments(request, () => null).input, [{ content: [{ annotations: [link] }] }])
})

t.test('notes of any other shape do no harm', async t => {
  for (const note of [
    null,
    7,
    { type: 'file' },
    { type: 'file', file: null },
    { type: 'file', file: { hash: 1, content: [] } },
    { type: 'file', file: { hash: 'h', content: [null, 'x', {}, { type: 'image_url', image_url: 7 }] } },
  ]) {
    const request = asking([
      { role: 'user', content: [{ type: 'input_text', text: 'x', annotations: [note] }] },
    ])
    t.equal(knownContents(request).size, 0)
    t.ok(withDocuments(request, () => null))
  }
})
