/**
 * The order of pages in the guide: every page of docs/ belongs to one part. A test names the pages that belong to none.
 */

/** Decisions follow in the order of their numbers; they stand under their own page. */
export const DECISIONS = 'docs/decisions'

export const PARTS = [
  {
    name: 'Start',
    pages: [
      'README.md',
      'docs/models.md',
      'docs/providers.md',
      'docs/clients.md',
      'docs/python.md',
      'docs/from-litellm.md',
      'docs/from-openrouter.md',
      'docs/why.md',
      'docs/troubleshooting.md',
    ],
  },
  {
    name: 'Use',
    pages: [
      'docs/inference.md',
      'docs/chat-completions.md',
      'docs/messages.md',
      'docs/gemini.md',
      'docs/embeddings.md',
      'docs/batches.md',
      'docs/resumable-streams.md',
      'docs/idempotency.md',
      'docs/tools.md',
      'docs/web.md',
      'docs/files.md',
      'docs/sandbox.md',
      'docs/mcp.md',
      'docs/fusion.md',
      'docs/plugins.md',
      'docs/routing.md',
      'docs/continuation.md',
      'docs/routes.md',
      'docs/plan.md',
      'docs/rollouts.md',
      'docs/pauses.md',
      'docs/routers.md',
      'docs/loops.md',
      'docs/end-users.md',
      'docs/rate-limits.md',
      'docs/proof.md',
      'docs/errors.md',
      'docs/sdk-errors.md',
      'docs/openapi.md',
    ],
  },
  {
    name: 'Operate',
    pages: [
      'docs/configuration.md',
      'docs/operations.md',
      'docs/management.md',
      'docs/costs.md',
      'docs/capacity.md',
      'docs/byok.md',
      'docs/guardrails.md',
      'docs/guardrails-api.md',
      'docs/console.md',
      'docs/metrics.md',
      'docs/tracing.md',
      'docs/alerts.md',
      'docs/captures.md',
      'docs/exports.md',
      'docs/runbook.md',
      'docs/security.md',
      'docs/prove.md',
    ],
  },
  {
    name: 'Understand',
    pages: [
      'docs/architecture.md',
      'docs/interface.md',
      'docs/performance.md',
      'CONTRIBUTING.md',
      'CHANGELOG.md',
    ],
  },
]
