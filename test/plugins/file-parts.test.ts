import t from 'tap'
import { bytesOf, isPdf, knownTexts, pdfsOf, withTexts } from '../../src/plugins/file-parts.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'

const file_data = `data:application/pdf;base64,${Buffer.from('%PDF-1').toString('base64')}`
const pdf = { type: 'input_file' as const, filename: 'a.pdf', file_data }
const asking = (input: unknown): ResponsesRequest => ({
  model: 'a/b',
  input: input as ResponsesRequest['input'],
})

t.test('a PDF is told by its data URL', async t => {
  t.ok(isPdf(pdf))
  t.ok(isPdf({ ...pdf, file_data: file_data.replace('pdf;', 'PDF;name=a;') }))
  for (const other of [
    null,
    { ...pdf, type: 'input_text' },
    { type: 'input_file', file_url: 'https://a/b.pdf' },
    { ...pdf, file_data: 'data:text/plain;base64,aGk=' },
    { ...pdf, file_data: 'JVBERi0x' },
  ])
    t.notOk(isPdf(other))
  t.equal(Buffer.from(bytesOf(pdf)).toString(), '%PDF-1')
  t.equal(bytesOf({ ...pdf, file_data: 'data:application/pdf;base64,%%%' }).length, 0)
})

t.test('PDFs are found in messages and in what tools gave back, under the paths of the caller', async t => {
  const input = [
    { role: 'user', content: 'hi' },
    { role: 'user', content: [{ type: 'input_text', text: 'a' }, pdf] },
    { type: 'function_call_output', call_id: 'c', output: [pdf] },
  ]
  t.same(
    pdfsOf(asking(input)).map(({ path }) => path),
    ['input[1].content[1].file_data', 'input[2].output[0].file_data'],
  )
  t.same(pdfsOf(asking('hi')), [])
  const text = { type: 'input_text', text: 'File: a.pdf\n\nread' }
  const { input: output } = withTexts(asking(input), () => 'read')
  t.same(output, [
    input[0],
    { role: 'user', content: [{ type: 'input_text', text: 'a' }, text] },
    { type: 'function_call_output', call_id: 'c', output: [text] },
  ])
  t.same(withTexts(asking(input), () => null).input, input)
})

t.test('texts that were sent back are known, and are not shown to the model as notes', async t => {
  const note = {
    type: 'file',
    file: {
      hash: 'h',
      content: [{ type: 'text', text: 'one' }, { type: 'image_url' }, { type: 'text', text: 'two' }],
    },
  }
  const link = { type: 'url_citation', url: 'http://a' }
  const request = asking([
    { role: 'assistant', content: [{ type: 'output_text', text: 'x', annotations: [link, note] }] },
  ])
  t.same([...knownTexts(request)], [['h', 'one\n\ntwo']])
  t.match(withTexts(request, () => null).input, [{ content: [{ annotations: [link] }] }])
})

t.test('notes of any other shape do no harm', async t => {
  for (const note of [
    null,
    7,
    { type: 'file' },
    { type: 'file', file: null },
    { type: 'file', file: { hash: 1, content: [] } },
    { type: 'file', file: { hash: 'h', content: [null, 'x', {}] } },
  ]) {
    const request = asking([
      { role: 'user', content: [{ type: 'input_text', text: 'x', annotations: [note] }] },
    ])
    t.equal(knownTexts(request).size, 0)
    t.ok(withTexts(request, () => null))
  }
})
