/** The form of a batch: checked in short jobs, of which each goes on where the one before ended. */
import t, { type Test } from 'tap'
import { BATCH_START } from '../../../src/features/tasks/batches/batch-progress.ts'
import { type CheckBatchOutput, checkBatch } from '../../../src/features/tasks/check-batch.ts'
import { hashFile } from '../../../src/features/tasks/hash-file.ts'
import { fileOf } from './file-bytes.ts'

/** Runs jobs until the batch is checked. */
function check(t: Test, document: string, budgetMs: number): { output: CheckBatchOutput; jobs: number } {
  const file = fileOf(t, document)
  let progress = BATCH_START
  for (let jobs = 1; ; jobs++) {
    const output = structuredClone(checkBatch({ file, progress, budgetMs }))
    if (output.outcome !== 'more') return { output, jobs }
    progress = output.progress
  }
}

const request = (number: number) => `{"custom_id":"r${number}","body":{"input":"x"}}`
const HEAD = '{"endpoint":"/v1/responses","model":"m","requests":['

t.test('a batch is checked in one job or in many, with the same outcome', async t => {
  const requests = Array.from({ length: 20 }, (_, number) => request(number)).join(',\n')
  const document = `${HEAD}${requests}],"provider":{"only":["acme"]}}`
  const long = check(t, document, 60_000)
  const short = check(t, document, 0)
  t.equal(long.jobs, 1)
  t.equal(short.jobs, 20)
  t.same(short.output, long.output)
  t.match(long.output, {
    outcome: 'whole',
    fields: { endpoint: '/v1/responses', model: 'm', provider: { only: ['acme'] } },
    model: 'm',
    requests: 20,
    firstRequest: { offset: HEAD.length, line: 1 },
  })
})

t.test('the outcome of a fault is its code and its message', async t => {
  const faults: readonly (readonly [document: string, code: string, message: RegExp])[] = [
    [`${HEAD}${request(0)},{}]}`, 'invalid_request', /^requests\[1\].custom_id: is required/],
    ['{"model":"m"}', 'invalid_request', /^endpoint: is required and must be one of/],
    [
      '{"endpoint":"/v1/responses","model":"m"}',
      'invalid_request',
      /^requests: is required and must be an array/,
    ],
    [`{"endpoint":"/v1/responses","requests":[${request(0)}]}`, 'invalid_request', /^model: is required/],
    [
      `${HEAD}{"custom_id":"a","body":{"model":"n"}}]}`,
      'unprocessable',
      /^requests\[0\].body.model: must be/,
    ],
  ]
  for (const [document, code, message] of faults) {
    const { output } = check(t, document, 0)
    t.match(output, { outcome: 'fault', code, message })
  }
})

t.test('the hash of a file is that of its bytes', async t => {
  t.equal(hashFile(fileOf(t, '')), 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  t.equal(hashFile(fileOf(t, 'abc')), 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
  // Of a million times the letter a, as the standard has it.
  t.equal(
    hashFile(fileOf(t, 'a'.repeat(1_000_000))),
    'cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0',
  )
})
