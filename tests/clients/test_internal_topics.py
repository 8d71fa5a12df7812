"""Internal topics are told by their names, and those of another application are not mistaken for ours."""

from streams.clients.internal_topics import InternalTopic, internal_topics

GENERATED = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"


def test_changelogs_and_repartition_topics_are_found_with_what_they_belong_to() -> None:
    topics = [
        "shop-sums-changelog",
        "shop-sums-repartition",
        "shop-sums-repartition.lanes",
        "shop-fk-subscription-registration-topic",
        "shop-fk-subscription-response-topic",
        "shop-orders",
        "shop-orders.lanes",
        "sums-changelog",
    ]

    assert internal_topics("shop", topics, ["shop", "shop-lanes"]) == [
        InternalTopic("shop-fk-subscription-registration-topic", topic="fk-subscription-registration-topic"),
        InternalTopic("shop-fk-subscription-response-topic", topic="fk-subscription-response-topic"),
        InternalTopic("shop-orders.lanes", topic="orders"),
        InternalTopic("shop-sums-changelog", store="sums"),
        InternalTopic("shop-sums-repartition", topic="sums-repartition"),
        InternalTopic("shop-sums-repartition.lanes", topic="sums-repartition"),
    ]


def test_a_group_with_a_longer_id_has_the_topics_that_begin_with_it() -> None:
    topics = ["shop-eu-sums-changelog", "shop-europe-changelog"]

    assert [found.store for found in internal_topics("shop", topics, ["shop-eu"])] == ["europe"]
    assert [found.store for found in internal_topics("shop", topics, [])] == ["eu-sums", "europe"]
    assert [found.store for found in internal_topics("shop-eu", topics, ["shop"])] == ["sums"]


def test_a_generated_name_begins_right_behind_the_id() -> None:
    topics = [f"shop-{GENERATED}-changelog"]

    assert [found.store for found in internal_topics("shop", topics, ["shop-KSTREAM"])] == [GENERATED]
