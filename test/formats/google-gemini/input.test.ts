import t from 'tap'
import { encodeContents } from '../../../src/formats/google-gemini/input.ts'
import { preparedPrompt } from '../../../src/formats/preconditions/prepare.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { functionCall as call, functionOutput as output } from './input-items.ts'

/** Requests pass the same check as a client's, so that no test encodes what could never arrive. */
function encoded(body: Record<string, unknown>, signing: boolean): unknown {
  const request = parseResponsesRequest({ model: 'google/gemini', ...body })
  const model = { request, stream: false, endUser: null }
  const prompt = preparedPrompt(model, 'google-gemini', endpointOf('google-gemini'))
  return encodeContents(prompt?.preparedRequest.input ?? request.input, signing).contents
}

const user = (...parts: unknown[]) => ({ role: 'user', parts })
const model = (...parts: unknown[]) => ({ role: 'model', parts })
const text = (value: string) => ({ text: value })

/** A call has to follow a turn of the user, so one stands before a conversation that opens with a call. */
function afterUser(contents: unknown): unknown {
  const [first] = contents as readonly { role: string; parts: readonly object[] }[]
  const opensWithCall = first?.role === 'model' && first.parts.some(part => 'functionCall' in part)
  return opensWithCall ? [user(text('Begin.')), ...(contents as readonly unknown[])] : contents
}

t.test('input items become turns', async t => {
  const cases: readonly {
    name: string
    body: Record<string, unknown>
    contents: unknown
    signing?: boolean
  }[] = [
    { name: 'a string', body: { input: 'Hi' }, contents: [user(text('Hi'))] },
    {
      name: 'neighbours of one role are one turn',
      body: {
        input: [
          { role: 'user', content: 'a' },
          { role: 'user', content: [{ type: 'input_text', text: 'b' }] },
          { role: 'assistant', content: 'c' },
          {
            type: 'message',
            role: 'assistant',
            id: 'm',
            status: 'completed',
            content: [
              { type: 'output_text', text: 'd', annotations: [] },
              { type: 'refusal', refusal: 'e' },
            ],
          },
          { role: 'user', content: 'f' },
        ],
      },
      contents: [user(text('a'), text('b')), model(text('c'), text('d'), text('e')), user(text('f'))],
    },
    {
      name: 'texts without content are left out',
      body: {
        input: [
          { role: 'user', content: 'a' },
          { role: 'assistant', content: '' },
          { role: 'assistant', content: null },
          { role: 'user', content: [{ type: 'input_text', text: '' }] },
        ],
      },
      contents: [user(text('a'))],
    },
    {
      name: 'parallel calls and their results',
      body: {
        input: [
          { role: 'user', content: 'q' },
          call('c1', 'f', { signature: 'sig' }),
          call('c2', 'g'),
          output('c1', '{"t":20}'),
          output('c2', 'warm'),
          { role: 'user', content: 'ok' },
        ],
      },
      contents: [
        user(text('q')),
        model(
          { functionCall: { id: 'c1', name: 'f', args: { a: 1 } }, thoughtSignature: 'sig' },
          { functionCall: { id: 'c2', name: 'g', args: { a: 1 } } },
        ),
        user(
          { functionResponse: { id: 'c1', name: 'f', response: { t: 20 } } },
          { functionResponse: { id: 'c2', name: 'g', response: { output: 'warm' } } },
        ),
        user(text('ok')),
      ],
    },
    {
      name: 'results that are no object are wrapped',
      body: {
        input: [
          call('1'),
          output('1', '[1]'),
          call('2'),
          output('2', '5'),
          call('3'),
          output('3', ''),
          call('4'),
          output('4', 'null'),
        ],
      },
      contents: ['[1]', '5', '', 'null'].flatMap((value, index) => {
        const id = String(index + 1)
        return [
          model({ functionCall: { id, name: 'f', args: { a: 1 } } }),
          user({ functionResponse: { id, name: 'f', response: { output: value } } }),
        ]
      }),
    },
    {
      name: 'media that a function gave back follow its result',
      body: {
        input: [
          call('1'),
          output('1', [
            { type: 'input_text', text: 'two' },
            { type: 'input_text', text: 'lines' },
            { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,QUJD' },
          ]),
          { role: 'user', content: 'see?' },
        ],
      },
      contents: [
        model({ functionCall: { id: '1', name: 'f', args: { a: 1 } } }),
        user({ functionResponse: { id: '1', name: 'f', response: { output: 'two\nlines' } } }),
        user(
          text('Output of tool call 1:'),
          { inlineData: { mimeType: 'image/png', data: 'QUJD' } },
          text('see?'),
        ),
      ],
    },
    {
      name: 'arguments that are no object are kept',
      body: {
        input: [
          call('1', 'f', { arguments: '' }),
          output('1', 'x'),
          call('2', 'f', { arguments: '{"cut' }),
          output('2', 'x'),
        ],
      },
      contents: [
        model({ functionCall: { id: '1', name: 'f', args: {} } }),
        user({ functionResponse: { id: '1', name: 'f', response: { output: 'x' } } }),
        model({ functionCall: { id: '2', name: 'f', args: { arguments: '{"cut' } } }),
        user({ functionResponse: { id: '2', name: 'f', response: { output: 'x' } } }),
      ],
    },
    {
      name: 'a signature before text goes back on the text, thoughts do not',
      body: {
        input: [
          {
            type: 'reasoning',
            id: 'r',
            summary: [{ type: 'summary_text', text: 'hm' }],
            format: 'google-gemini-v1',
            signature: 'sig',
          },
          {
            role: 'assistant',
            content: [
              { type: 'output_text', text: 'a' },
              { type: 'output_text', text: 'b' },
            ],
          },
          { role: 'user', content: 'c' },
        ],
      },
      contents: [model({ text: 'a', thoughtSignature: 'sig' }, text('b')), user(text('c'))],
    },
    {
      name: 'a signature after text goes back on an empty text',
      body: {
        input: [
          { role: 'assistant', content: 'a' },
          { type: 'reasoning', id: 'r', summary: [], format: 'google-gemini-v1', signature: 'sig' },
          { role: 'user', content: 'c' },
        ],
      },
      contents: [model(text('a'), { text: '', thoughtSignature: 'sig' }), user(text('c'))],
    },
    {
      name: 'a signature before a call without its own goes back on the call',
      body: {
        input: [
          { type: 'reasoning', id: 'r', summary: [], format: 'google-gemini-v1', signature: 'sig' },
          call('1'),
        ],
      },
      contents: [model({ functionCall: { id: '1', name: 'f', args: { a: 1 } }, thoughtSignature: 'sig' })],
    },
    {
      name: 'a signature between text and a call with its own belongs to the text',
      body: {
        input: [
          { role: 'assistant', content: 'a' },
          { type: 'reasoning', id: 'r', summary: [], format: 'google-gemini-v1', signature: 'sig' },
          call('1', 'f', { signature: 'own' }),
        ],
      },
      contents: [
        model(
          text('a'),
          { text: '', thoughtSignature: 'sig' },
          { functionCall: { id: '1', name: 'f', args: { a: 1 } }, thoughtSignature: 'own' },
        ),
      ],
    },
    {
      name: 'signatures of other makers stay here',
      body: {
        input: [
          { type: 'reasoning', id: 'r', summary: [], format: 'anthropic-claude-v1', signature: 'foreign' },
          { type: 'reasoning', id: 's', summary: [], signature: 'unmarked', encrypted_content: 'x' },
          { role: 'assistant', content: 'a' },
        ],
      },
      contents: [model(text('a'))],
    },
    {
      name: 'calls of another model, for a model that demands signatures',
      signing: true,
      body: {
        input: [
          call('1'),
          call('2'),
          output('1', 'x'),
          output('2', 'x'),
          call('3', 'f', { signature: 'own' }),
          output('3', 'x'),
        ],
      },
      contents: [
        model(
          {
            functionCall: { id: '1', name: 'f', args: { a: 1 } },
            thoughtSignature: 'skip_thought_signature_validator',
          },
          { functionCall: { id: '2', name: 'f', args: { a: 1 } } },
        ),
        user(
          { functionResponse: { id: '1', name: 'f', response: { output: 'x' } } },
          { functionResponse: { id: '2', name: 'f', response: { output: 'x' } } },
        ),
        model({ functionCall: { id: '3', name: 'f', args: { a: 1 } }, thoughtSignature: 'own' }),
        user({ functionResponse: { id: '3', name: 'f', response: { output: 'x' } } }),
      ],
    },
    {
      name: 'code that the provider ran, and images it made',
      body: {
        input: [
          {
            type: 'code_interpreter_call',
            id: 'c0de',
            status: 'completed',
            code: 'print(1)',
            outputs: [
              { type: 'logs', logs: '1\n' },
              { type: 'image', url: 'data:,' },
            ],
            signature: 'sig',
          },
          { type: 'code_interpreter_call', id: 'st_1', status: 'failed', code: 'boom()', outputs: [] },
          { type: 'code_interpreter_call', id: 'st_2', status: 'incomplete', code: 'cut()', outputs: [] },
          {
            type: 'image_generation_call',
            id: 'st_3',
            status: 'completed',
            result: 'QUJD',
            output_format: 'jpeg',
          },
          {
            type: 'image_generation_call',
            id: 'st_4',
            status: 'completed',
            result: 'data:image/png;base64,QUJD',
            signature: 's4',
          },
          { type: 'image_generation_call', id: 'st_5' },
          {
            type: 'web_search_call',
            id: 'st_6',
            status: 'completed',
            action: { type: 'search', query: 'x' },
          },
          { type: 'gateway:web_fetch', url: 'https://example.com' },
        ],
      },
      contents: [
        model(
          { executableCode: { id: 'c0de', language: 'PYTHON', code: 'print(1)' }, thoughtSignature: 'sig' },
          { codeExecutionResult: { id: 'c0de', outcome: 'OUTCOME_OK', output: '1\n' } },
          { executableCode: { language: 'PYTHON', code: 'boom()' } },
          { codeExecutionResult: { outcome: 'OUTCOME_FAILED' } },
          { executableCode: { language: 'PYTHON', code: 'cut()' } },
          { inlineData: { mimeType: 'image/jpeg', data: 'QUJD' } },
          { inlineData: { mimeType: 'image/png', data: 'QUJD' }, thoughtSignature: 's4' },
        ),
      ],
    },
    {
      name: 'media of a user',
      body: {
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_image', detail: 'auto', image_url: 'DATA:image/webp;base64,QUJD' },
              { type: 'input_image', detail: 'auto', image_url: 'https://a.example/p.JPG?w=1#x.png' },
              { type: 'input_image', detail: 'auto', image_url: 'https://a.example/p' },
              {
                type: 'input_image',
                detail: 'auto',
                file_id: 'https://generativelanguage.example/v1beta/files/7',
              },
              { type: 'input_file', filename: 'a.csv', file_data: 'QSxC' },
              { type: 'input_file', filename: 'a.bin', file_data: 'data:application/pdf;base64,QUJD' },
              { type: 'input_file', file_data: 'data:text/plain;charset=utf-8,%C3%A9' },
              { type: 'input_file', filename: 'b.pdf', file_url: 'gs://bucket/b' },
              { type: 'input_audio', input_audio: { data: 'UklG', format: 'wav' } },
              { type: 'input_video', video_url: 'https://youtu.be/abc' },
              { type: 'input_video', video_url: 'data:video/webm;base64,QUJD' },
            ],
          },
        ],
      },
      contents: [
        user(
          { inlineData: { mimeType: 'image/webp', data: 'QUJD' } },
          { fileData: { mimeType: 'image/jpeg', fileUri: 'https://a.example/p.JPG?w=1#x.png' } },
          { fileData: { fileUri: 'https://a.example/p' } },
          { fileData: { fileUri: 'https://generativelanguage.example/v1beta/files/7' } },
          { inlineData: { mimeType: 'text/csv', data: 'QSxC' } },
          { inlineData: { mimeType: 'application/pdf', data: 'QUJD' } },
          { inlineData: { mimeType: 'text/plain', data: 'w6k=' } },
          { fileData: { mimeType: 'application/pdf', fileUri: 'gs://bucket/b' } },
          { inlineData: { mimeType: 'audio/wav', data: 'UklG' } },
          { fileData: { mimeType: 'video/mp4', fileUri: 'https://youtu.be/abc' } },
          { inlineData: { mimeType: 'video/webm', data: 'QUJD' } },
        ),
      ],
    },
  ]
  for (const { name, body, contents, signing = false } of cases)
    t.strictSame(encoded(body, signing), afterUser(contents), name)
})
