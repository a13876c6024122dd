/** The contract of jobs at batch services, and of the lines that they have. */
import type { Test } from 'tap'
import {
  type BatchStore,
  jobOwner,
  type NewServiceJob,
  type OpenedServiceJob,
} from '../../../src/storage/service-jobs.ts'
import { acceptRunning, allResults, at, claim, LEASE_MS, NOW_MS, present, someResult } from '../batches.ts'
import type { Opened } from '../contract.ts'
import { ODD_TEXT } from '../records.ts'

const LATER_MS = NOW_MS + 1_000 * LEASE_MS

function someJob(batchId: string, fields: Partial<NewServiceJob> = {}): NewServiceJob {
  return {
    batchId,
    provider: 'openai',
    credentialId: null,
    upstreamModel: 'gpt',
    format: 'openai-chat',
    path: '/chat/completions',
    mark: 'mark-1',
    reserved: '0',
    createdAt: at(5),
    ...fields,
  }
}

/** A job of the next lines of a batch, made by its runner. */
async function openJob(
  batches: BatchStore,
  id: string,
  lines: number,
  fields: Partial<NewServiceJob> = {},
  owner = 'runner',
): Promise<OpenedServiceJob> {
  const claimed = await claim(batches, id, owner, lines)
  return present(await batches.jobs.open(owner, someJob(id, fields), claimed, NOW_MS + LEASE_MS))
}

const numbersOf = (lines: readonly { readonly number: number }[]) => lines.map(({ number }) => number)

export async function serviceJobsContract(t: Test, opened: Opened): Promise<void> {
  await t.test('a job has the claimed lines that it was made of, and nobody else gets them', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 6 })
    const fields = { credentialId: 'c1', reserved: '123456789012345678', upstreamModel: ODD_TEXT }
    const first = await openJob(batches, id, 2, fields)
    t.match(first.job, { ...someJob(id, fields), number: 0, name: null, lines: 2 })
    t.same(numbersOf(first.lines), [0, 1])
    const second = await openJob(batches, id, 3)
    t.equal(second.job.number, 1)
    t.same(numbersOf(await claim(batches, id, 'other', 10, LATER_MS)), [5], 'their leases never end')
    t.same(await batches.work.counts(id), { unchecked: 0, waiting: 0, claimed: 6, finished: 0 })
    t.equal(await batches.work.nextLineAt(id), null)
    t.same(
      await batches.jobs.openJobs(),
      [first, second].map(({ job }) => ({ ...job, status: 'in_progress' })),
    )
    t.same(await batches.jobs.ofBatch(id), [first.job, second.job])
    t.same(await batches.jobs.ofBatch('batch_unknown'), [])
  })

  await t.test('lines that another runner has got meanwhile stay with it', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 3 })
    const mine = await claim(batches, id, 'slow', 3)
    await batches.work.renew('slow', mine.slice(0, 1), LATER_MS + LEASE_MS)
    t.same(numbersOf(await claim(batches, id, 'quick', 3, LATER_MS)), [1, 2])
    const job = present(await batches.jobs.open('slow', someJob(id), mine, LATER_MS))
    t.same(numbersOf(job.lines), [0])
    t.equal(job.job.lines, 1)
    t.equal(await batches.jobs.open('slow', someJob(id), mine, LATER_MS), null, 'the job has it now')
    t.equal((await batches.jobs.ofBatch(id)).length, 1)
  })

  await t.test('no job is made of a batch that is not in progress any more', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 1 })
    const lines = await claim(batches, id, 'runner', 1)
    await batches.work.move(id, ['in_progress'], 'cancelling', at(1))
    t.equal(await batches.jobs.open('runner', someJob(id), lines, NOW_MS), null)
    t.same(await batches.jobs.openJobs(), [])
    t.equal(
      (await batches.work.renew('runner', lines, LATER_MS)).length,
      1,
      'its lines are still the runner’s',
    )
  })

  await t.test('jobs that are made at the same time have numbers of their own', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 8 })
    const owners = Array.from({ length: 8 }, (_, at) => `runner-${at}`)
    const lines: Awaited<ReturnType<typeof claim>>[] = []
    for (const owner of owners) lines.push(await claim(batches, id, owner, 1))
    const made = await Promise.all(
      owners.map((owner, at) => batches.jobs.open(owner, someJob(id), lines[at] ?? [], NOW_MS)),
    )
    t.same(made.map(each => present(each).job.number).toSorted(), [0, 1, 2, 3, 4, 5, 6, 7])
  })

  await t.test('one runner at a time has a job, and goes on while it extends its claim', async t => {
    const { batches } = await opened(t)
    const { jobs } = batches
    const { id } = await acceptRunning(batches, { lines: 1 })
    const { job, claim: first } = await openJob(batches, id, 1)
    t.equal(await jobs.claim(job, 'other', NOW_MS, LATER_MS), null)
    t.same(
      await jobs.claim(job, 'runner', NOW_MS, NOW_MS + 2 * LEASE_MS),
      first,
      'the same claim, for longer',
    )
    t.equal(await jobs.claim(job, 'other', NOW_MS + LEASE_MS + 1, LATER_MS), null)
    const second = present(await jobs.claim(job, 'other', NOW_MS + 2 * LEASE_MS, LATER_MS))
    t.ok(second.fence > first.fence)
    t.equal(await jobs.name(job, first, 'mine'), false)
    t.equal(await jobs.close(job, first), false)
    await jobs.release(job, first)
    t.equal(await jobs.claim(job, 'third', NOW_MS, LATER_MS), null, 'only its owner releases it')
    t.equal(await jobs.name(job, second, ODD_TEXT), true)
    t.match(await jobs.openJobs(), [{ name: ODD_TEXT }])
    await jobs.release(job, second)
    const third = present(await jobs.claim(job, 'third', NOW_MS, LATER_MS))
    t.ok(third.fence > second.fence)
    t.equal(await jobs.claim({ batchId: id, number: 7 }, 'third', NOW_MS, LATER_MS), null)
  })

  await t.test('the lines of a job are read by their numbers, or page by page', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 700 })
    await openJob(batches, id, 10)
    const { job } = await openJob(batches, id, 600)
    const { jobs } = batches
    const some = await jobs.lines(job, { numbers: [609, 5, 10, 640, 11, 9_999] })
    t.same(
      some.map(line => line),
      [10, 11, 609].map(number => ({
        batchId: id,
        number,
        customId: `line-${number}`,
        body: `{"input":"${number}"}`,
        fence: 1,
        tries: 0,
      })),
    )
    const all: number[] = []
    for (let after = -1; ; ) {
      const page = await jobs.lines(job, { after, limit: 250 })
      if (page.length === 0) break
      all.push(...numbersOf(page))
      after = all.at(-1) ?? after
    }
    t.same(
      all,
      Array.from({ length: 600 }, (_, at) => at + 10),
    )
    t.same(numbersOf(await jobs.lines(job, { after: 10, limit: 9, maxBytes: 30 })), [11, 12])
    t.same(await jobs.lines(job, { numbers: [] }), [])
  })

  await t.test('lines of a job get their results in its name, each once', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 3 })
    const { job, lines } = await openJob(batches, id, 3)
    const results = lines.map(line => someResult(line))
    const owner = jobOwner(job)
    t.same(numbersOf(await batches.work.finish(owner, results.slice(0, 2))), [0, 1])
    t.same(numbersOf(await batches.work.finish(owner, results)), [2], 'a second collection changes nothing')
    t.same(await batches.work.finish('runner', results), [])
    t.same(await batches.jobs.lines(job, { after: -1, limit: 9 }), [])
    t.equal((await allResults(batches, id)).length, 3)
    t.same(await batches.work.counts(id), { unchecked: 0, waiting: 0, claimed: 0, finished: 3 })
  })

  await t.test('lines of a job that failed in a way that may pass go back to the queue', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 2 })
    const { job, lines } = await openJob(batches, id, 2)
    const back = lines.slice(0, 1).map(line => ({ ...line, tries: 1, notBeforeMs: NOW_MS + 5 }))
    await batches.work.giveBack(jobOwner(job), back)
    t.equal(await batches.work.nextLineAt(id), NOW_MS + 5)
    t.match(await claim(batches, id, 'runner', 9, NOW_MS + 5), [{ number: 0, tries: 1, fence: 2 }])
  })

  await t.test('a closed job is kept, and what it has not done goes back to the queue', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 3 })
    const { job, lines, claim: claimed } = await openJob(batches, id, 2)
    await batches.jobs.name(job, claimed, 'named')
    await batches.work.finish(
      jobOwner(job),
      lines.slice(0, 1).map(line => someResult(line)),
    )
    t.equal(await batches.jobs.close(job, claimed), true)
    t.equal(await batches.jobs.close(job, claimed), false)
    t.equal(await batches.jobs.claim(job, 'runner', LATER_MS, LATER_MS), null)
    t.same(await batches.jobs.openJobs(), [])
    t.match(await batches.jobs.ofBatch(id), [{ number: 0, name: 'named', lines: 2 }])
    t.same(numbersOf(await claim(batches, id, 'runner', 9)), [1, 2])
    t.equal((await openJob(batches, id, 0).catch(() => null)) ?? null, null, 'a job has lines')
  })

  await t.test('jobs tell the state of their batch, and go with it', async t => {
    const { batches } = await opened(t)
    const { id } = await acceptRunning(batches, { lines: 1 })
    const { job } = await openJob(batches, id, 1)
    await batches.work.move(id, ['in_progress'], 'cancelling', at(1))
    t.match(await batches.jobs.openJobs(), [{ status: 'cancelling' }])
    await batches.work.move(id, ['cancelling'], 'cancelled', at(2))
    t.same(
      numbersOf(await batches.jobs.lines(job, { after: -1, limit: 9 })),
      [0],
      'lines without a result stay as they are',
    )
    await batches.remove('org_1', 'ws_1', id)
    t.match(await batches.jobs.openJobs(), [{ batchId: id, status: null }])
    while ((await batches.work.prune(at(9), LATER_MS, 10)) > 0);
    t.same(await batches.jobs.openJobs(), [])
    t.same(await batches.jobs.ofBatch(id), [])
  })
}
