"""Losses of temporally abstract actor-critic, TAAC, TaacL and TaacQ (Yu, Xu and Zhang 2021, arXiv 2104.06521).

Rows of sequences are `[T, B]`; D rewards per step, usually one, are a separate axis. The loss functions return one
value per row; the agent averages over all rows, without those after an episode's last action.
"""

from __future__ import annotations

import tensorflow as tf

from tfsac.losses.soft_actor_critic import assert_shapes, squared_or_huber


def compare_through_returns(
    reward_TBD: tf.Tensor,
    nonterminal_TB: tf.Tensor,
    gamma_D: tf.Tensor,
    keep_q_TBD: tf.Tensor,
    switch_q_TBD: tf.Tensor,
    keep_TB: tf.Tensor,
    last_TB: tf.Tensor,
    switched_TB: tf.Tensor,
    would_switch_TB: tf.Tensor | None,
) -> tf.Tensor:
    """Equation 9, the compare-through operator: rewards are summed for as long as the policy would have kept the stored
    trajectory.

    `G[t] = r[t] + gamma * nonterminal[t] * acc[t + 1]`, and `acc[t]` is `G[t]` where the stored step kept its
    trajectory and so does the current policy, `V[t] = beta0 * Q(tau0) + beta1 * Q(tau1)` where either switches, the
    episode is over, or the sequence ends. Rewards have the index of their actions.

    Args:
        reward_TBD: rewards after the filters.
        nonterminal_TB: 1 - terminated.
        gamma_D: discount of each reward.
        keep_q_TBD, switch_q_TBD: target critics at tau0 and tau1 of the current policy.
        keep_TB: its probability of keeping, beta0.
        last_TB: booleans, rows after an episode's last action.
        switched_TB: booleans, whether the stored step switched.
        would_switch_TB: booleans, a sample of the current choice, as in ALF. ALF's mistake: where it switches, the
            target is V instead of Q(tau1). None takes the expectation instead, `acc = beta1 * Q(tau1) + beta0 * G`,
            which is unbiased.

    Returns:
        `[T - 1, B, D]`, without gradient.
    """
    assert_shapes(
        reward=(reward_TBD, "TBD"),
        nonterminal=(nonterminal_TB, "TB"),
        gamma=(gamma_D, "D"),
        keep_q=(keep_q_TBD, "TBD"),
        switch_q=(switch_q_TBD, "TBD"),
        keep=(keep_TB, "TB"),
        last=(last_TB, "TB"),
        switched=(switched_TB, "TB"),
    )
    if would_switch_TB is not None:
        assert_shapes(reward=(reward_TBD, "TBD"), would_switch=(would_switch_TB, "TB"))
    steps = reward_TBD.shape[0]
    keep_TB1, last_TB1, switched_TB1 = keep_TB[..., None], last_TB[..., None], switched_TB[..., None]
    value_TBD = keep_TB1 * keep_q_TBD + (1.0 - keep_TB1) * switch_q_TBD
    accumulated_BD, returns = value_TBD[-1], []
    for t in reversed(range(steps - 1)):
        return_BD = reward_TBD[t] + gamma_D * nonterminal_TB[t][:, None] * accumulated_BD
        returns.append(return_BD)
        if would_switch_TB is None:
            through_BD = keep_TB1[t] * return_BD + (1.0 - keep_TB1[t]) * switch_q_TBD[t]
        else:
            through_BD = tf.where(would_switch_TB[t][:, None], value_TBD[t], return_BD)
        accumulated_BD = tf.where(last_TB1[t] | switched_TB1[t], value_TBD[t], through_BD)
    return tf.stop_gradient(tf.stack(returns[::-1]))


def critic_loss(q_TBND: tf.Tensor, return_TBD: tf.Tensor, huber: bool = False) -> tf.Tensor:
    """Returns `mean over rewards of (G - Q_i)^2`, `[T, B, N]`, zero in the last row, for which there is no target.

    Args:
        q_TBND: critics at the stored trajectories.
        return_TBD: returns of all rows but the last, `[T - 1, B, D]`.
        huber: see `squared_or_huber`.
    """
    assert_shapes(q=(q_TBND[:-1], "TBND"), returns=(return_TBD, "TBD"))
    error_TBND = squared_or_huber(q_TBND[:-1] - return_TBD[:, :, None], huber)
    return tf.pad(tf.reduce_mean(error_TBND, axis=-1), [[0, 1], [0, 0], [0, 0]])


def policy_loss(log_prob_B: tf.Tensor, switch_B: tf.Tensor, switch_q_B: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Equation 8: `alpha * log pi(a^|s, tau-) - sg(beta1) * Q(s, tau1(a^))`, with the gradient through all of tau1.

    Args:
        log_prob_B: log density of the proposal.
        switch_B: probability of taking it, beta1.
        switch_q_B: weighted sum over rewards of the pessimistic critic.
        alpha: temperature of the proposal, a scalar, without gradient.
    """
    assert_shapes(log_prob=(log_prob_B, "B"), switch=(switch_B, "B"), switch_q=(switch_q_B, "B"))
    assert_shapes(alpha=(alpha, ""))
    return alpha * log_prob_B - tf.stop_gradient(switch_B) * switch_q_B
