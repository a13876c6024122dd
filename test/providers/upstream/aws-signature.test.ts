/** Signatures are checked by recomputing them, with the library at a server and with the example that AWS publishes. */
import { createServer } from 'node:http'
import t from 'tap'
import { awsSigner, signatureIn } from '../../../src/providers/upstream/aws-signature.ts'
import { expectedSignature, type Received } from '../../support/aws-signature.ts'
import { listening } from '../../support/listening.ts'
import { TestClock } from '../../support/test-clock.ts'

const ACCESS = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY' }

t.test('a request that reaches its server has the signature that AWS computes', async t => {
  const clock = new TestClock()
  const seen: Received[] = []
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8')
    request.on('data', (chunk: string) => {
      body += chunk
    })
    request.on('end', () => {
      seen.push({ path: request.url ?? '', headers: request.headers, body })
      response.end()
    })
  })
  const { url: base } = await listening(server, t)
  const url = new URL(`${base}/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream`)
  const sign = awsSigner(clock, ACCESS, { region: 'eu-central-1', service: 'bedrock' })
  for (const body of ['{"messages":[]}', '', JSON.stringify({ text: 'ü👋'.repeat(50_000) })]) {
    const headers = { ...(await sign({ method: 'POST', url, headers: {}, body })), 'x-added': 'on the way' }
    await (await fetch(url, { method: 'POST', headers, body })).arrayBuffer()
    const received = seen.at(-1)
    t.ok(received)
    if (received === undefined) continue
    const authorization = String(received.headers['authorization'])
    t.match(
      authorization,
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-central-1\/bedrock\/aws4_request, /,
    )
    t.match(authorization, 'SignedHeaders=host;x-amz-content-sha256;x-amz-date, ')
    t.ok(authorization.endsWith(`Signature=${expectedSignature(received, ACCESS.secretAccessKey)}`))
    t.same(signatureIn(headers), [expectedSignature(received, ACCESS.secretAccessKey)])
    t.notMatch(JSON.stringify(headers), ACCESS.secretAccessKey)
    const at = new Date(clock.nowMs()).toISOString().replace(/[-:]|\.\d+/g, '')
    t.equal(received.headers['x-amz-date'], at, 'the time is that of the clock')
  }
})

t.test('another body, time or region has another signature', async t => {
  const clock = new TestClock()
  const url = new URL('https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse')
  const signature = async (region: string, body: string) =>
    signatureIn(
      await awsSigner(clock, ACCESS, { region, service: 'bedrock' })({
        method: 'POST',
        url,
        headers: {},
        body,
      }),
    )[0]
  const first = await signature('us-east-1', 'a')
  t.equal(await signature('us-east-1', 'a'), first)
  t.not(await signature('us-east-1', 'b'), first)
  t.not(await signature('us-west-2', 'a'), first)
  clock.advance(1_000)
  t.not(await signature('us-east-1', 'a'), first)
})
